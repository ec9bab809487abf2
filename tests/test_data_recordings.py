import hashlib
from dataclasses import replace
from pathlib import Path

from indextts.data.manifest import Utterance
from indextts.data.recordings import inspect
from tests.preprocess_project import write_audio


def test_a_key_is_the_digest_of_a_file_and_a_deleted_file_is_rejected(tmp_path: Path):
    utterances = [Utterance(name, tmp_path / f"{name}.wav", "ሰላም", "s", 1.0) for name in "ab"]
    write_audio(utterances[0].audio, 0.5, seed=0)
    again = replace(utterances[0], id="again")
    found, keys, rejected = inspect(tmp_path, list(enumerate([*utterances, again])))
    key = hashlib.sha256(utterances[0].audio.read_bytes()).hexdigest()
    assert keys == {"a": key, "again": key}
    assert [(each.id, each.duration_s) for each in found] == [("a", 0.5), ("again", 0.5)]
    assert [(each.id, each.code) for each in rejected] == [("b", "missing")]
