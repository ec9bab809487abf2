import hashlib
from dataclasses import replace
from pathlib import Path

from indextts.data.manifest import Utterance
from indextts.data.recordings import keys_of


def test_a_key_is_the_digest_of_a_file_and_a_deleted_file_has_none(tmp_path: Path):
    utterances = [Utterance(name, tmp_path / name, "ሰላም", "s", 1.0) for name in "ab"]
    (tmp_path / "a").write_bytes(b"content")
    again = replace(utterances[0], id="again")
    key = hashlib.sha256(b"content").hexdigest()
    assert keys_of([*utterances, again]) == {"a": key, "again": key}
