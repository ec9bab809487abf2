import hashlib
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.data import pair_index
from indextts.data.manifest import Pair, read_pairs, write_pairs
from indextts.data.pair_columns import PairColumns
from indextts.data.pair_index import BuildStoppedError, find_index, index_path, load_index
from indextts.errors import UserError
from indextts.text.tokenizer import Tokenizer
from tests.conftest import REPOSITORY
from tests.tiny_run import make_tiny_run
from tests.trainer_process import TrainerProcess
from tests.waiting import PATIENCE_S, wait_until

BASE = Tokenizer.load(REPOSITORY / "tests/base_2.0/bpe.model")
SENTENCES = (REPOSITORY / "demo/sentences.txt").read_text(encoding="utf-8").split("\n")[:60]


class CountingTokenizer(Tokenizer):
    """The base tokenizer; `texts` are those that it tokenized."""

    def __init__(self, options: NormalizerOptions | None = None) -> None:
        super().__init__(BASE.model_bytes, BASE.path, options)
        self.texts: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.texts.append(text)
        return super().encode(text)


def pair(number: int, folder: Path, **changes: object) -> Pair:
    target, prompt = f"u{number}", f"u{number // 2}"
    whole = Pair(
        id=f"{target}__{prompt}__{number}",
        speaker=f"ተናጋሪ {number % 3}",
        prompt_id=prompt,
        target_id=target,
        target_text=SENTENCES[number % 7],
        target_num_codes=10 + number,
        target_duration_s=0.1 + number,
        prompt_duration_s=1 / (1 + number),
        features=folder / f"features/{number % 2}.json",
        prompt_key=hashlib.sha256(prompt.encode()).hexdigest(),
        target_key=hashlib.sha256(target.encode()).hexdigest(),
    )
    return replace(whole, **changes)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """A file of 20 pairs with 7 texts, 3 speakers and 2 feature stores."""
    path = tmp_path / "data/train_pairs.jsonl"
    write_pairs(path, [pair(number, path.parent) for number in range(20)])
    return path


def check(columns: PairColumns, manifest: Path, tokenizer: Tokenizer = BASE) -> None:
    """Check that the columns have the pairs of the file, each with the ids of its text."""
    pairs = read_pairs(manifest)
    assert list(columns) == pairs
    for index, each in enumerate(pairs):
        assert columns.text_ids(index).tolist() == tokenizer.encode(each.target_text)
        assert columns.id_of(index) == each.id
        assert columns.speaker_of(index) == each.speaker
    assert columns.num_text_ids.tolist() == [len(tokenizer.encode(each.target_text)) for each in pairs]
    assert columns.used_stores == sorted({each.features for each in pairs})
    assert columns.speaker_names == {each.speaker for each in pairs}


def test_an_index_has_the_pairs_and_the_ids_of_their_texts(manifest: Path):
    built = load_index(manifest, BASE)
    check(built.pairs, manifest)
    found = find_index(manifest, BASE)
    assert found.manifest == built.manifest
    check(found.pairs, manifest)


@pytest.mark.long
@pytest.mark.failure(69)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_trainer_that_is_killed_or_stopped_while_it_indexes_leaves_nothing(
    tmp_path: Path, number: signal.Signals
):
    run = make_tiny_run(tmp_path / "tiny")
    path = run.folder / "train_pairs.jsonl"
    first, *_ = read_pairs(path)
    texts = (f"{SENTENCES[n % 60]} {SENTENCES[n // 60 % 60]} {n}" for n in range(20_000))
    write_pairs(path, (replace(first, id=str(n), target_text=text) for n, text in enumerate(texts)))
    process = TrainerProcess(run.flags(), tmp_path / "output.log")
    try:
        log = run.output / "train.log"
        wait_until(lambda: log.exists() and "[Info] Tokenizing 20000" in log.read_text(encoding="utf-8"))
        process.send(number, to_group=True)
        assert process.wait(PATIENCE_S) == {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143}[number]
        assert process.wait_for_members(PATIENCE_S) == []
    finally:
        process.end()
    assert not index_path(path).exists()
    assert [each.name for each in run.folder.iterdir() if each.name.startswith(".tmp-")] == []
    write_pairs(path, [replace(first, id=str(n)) for n in range(10)])
    assert run.train(max_steps=1) == 0
    tokenizer = run.tokenizer
    check(load_index(path, tokenizer).pairs, path, tokenizer)


def test_a_second_start_tokenizes_nothing_and_writes_nothing(manifest: Path):
    first, second = CountingTokenizer(), CountingTokenizer()
    load_index(manifest, first)
    stamp = index_path(manifest).stat()
    load_index(manifest, second)
    assert (len(first.texts), len(second.texts)) == (7, 0)
    assert index_path(manifest).stat().st_mtime_ns == stamp.st_mtime_ns


@pytest.mark.failure(68)
def test_an_index_of_other_pairs_is_built_again(manifest: Path):
    load_index(manifest, BASE)
    pairs = [replace(each, target_text="አዲስ ጽሑፍ።") for each in read_pairs(manifest)[::-1]]
    write_pairs(manifest, [*pairs, pair(99, manifest.parent, id="99")])
    assert find_index(manifest, BASE) is None
    check(load_index(manifest, BASE).pairs, manifest)


@pytest.mark.parametrize("what", ["tokenizer", "normaliser"])
def test_an_index_of_another_tokenizer_or_normaliser_is_built_again(manifest: Path, what: str, tmp_path):
    write_pairs(manifest, [pair(0, manifest.parent, target_text="በ1985 ዓ.ም. ተወለደ።")])
    before = load_index(manifest, BASE).pairs.text_ids(0).tolist()
    other = CountingTokenizer(NormalizerOptions(years="hundreds"))
    if what == "tokenizer":
        proto = BASE.proto
        proto.pieces[300].score -= 1
        other = Tokenizer(proto.SerializeToString(), tmp_path / "other.model")  # type: ignore[assignment]
    assert find_index(manifest, other) is None
    index = load_index(manifest, other)
    check(index.pairs, manifest, other)
    assert (index.pairs.text_ids(0).tolist() == before) == (what == "tokenizer")
    assert find_index(manifest, BASE) is None


def damaged(content: bytes) -> Iterator[bytes]:
    random = Random(0)
    yield b""
    yield content[:40]
    yield content[: len(content) // 2]
    yield content + b"\0"
    yield b"not an index"
    for place in (0, 8, 20, len(content) - 1, *(random.randrange(len(content)) for _ in range(20))):
        changed = bytearray(content)
        changed[place] ^= 1 << random.randrange(8)
        yield bytes(changed)


@pytest.mark.failure(68)
def test_a_corrupt_index_is_built_again(manifest: Path):
    load_index(manifest, BASE)
    path = index_path(manifest)
    content = path.read_bytes()
    for each in damaged(content):
        path.unlink()
        path.write_bytes(each)
        check(load_index(manifest, BASE).pairs, manifest)  # some bytes of an archive mean nothing


def test_an_index_moves_with_its_folder(manifest: Path, tmp_path: Path):
    load_index(manifest, BASE)
    shutil.copytree(manifest.parent, tmp_path / "elsewhere")
    moved = tmp_path / "elsewhere" / manifest.name
    found = find_index(moved, BASE)
    check(found.pairs, moved)


def test_an_index_that_cannot_be_beside_the_pairs_is_in_the_run_directory(manifest: Path, tmp_path, caplog):
    index_path(manifest).mkdir()  # no file can replace it, not even as root
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    check(load_index(manifest, BASE, run_dir).pairs, manifest)
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert str(index_path(manifest)) in warning.getMessage()
    again = CountingTokenizer()
    check(load_index(manifest, again, run_dir).pairs, manifest)
    assert again.texts == []
    assert len(list(run_dir.iterdir())) == 1
    check(load_index(manifest, again, tmp_path / "absent").pairs, manifest)  # in memory
    assert len(again.texts) == 7


def test_a_plan_writes_no_index(manifest: Path):
    check(load_index(manifest, BASE, may_write=False).pairs, manifest)
    assert sorted(path.name for path in manifest.parent.iterdir()) == [manifest.name]


@pytest.mark.long
def test_many_texts_are_tokenized_by_several_processes(manifest: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pair_index, "num_cores", lambda: 2)
    monkeypatch.setattr(pair_index, "MIN_TEXTS_PER_PROCESS", 20)
    monkeypatch.setattr(pair_index, "CHUNK", 3)
    texts = [f"{SENTENCES[n % 60]} {n}" for n in range(50)]
    found = pair_index.tokenize(texts, BASE)
    assert [found[row].tolist() for row in range(50)] == [BASE.encode(text) for text in texts]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_build_stops_on_request_and_leaves_no_file(manifest: Path, monkeypatch, processes: int):
    monkeypatch.setattr(pair_index, "num_cores", lambda: processes)
    monkeypatch.setattr(pair_index, "MIN_TEXTS_PER_PROCESS", 2)
    monkeypatch.setattr(pair_index, "CHUNK", 1)
    answers = iter([False, False, True])
    with pytest.raises(BuildStoppedError):
        load_index(manifest, BASE, should_stop=lambda: next(answers, True))
    assert sorted(path.name for path in manifest.parent.iterdir()) == [manifest.name]


def test_a_file_that_changes_while_it_is_read_is_refused(manifest: Path):
    class Rewriting(CountingTokenizer):
        def encode(self, text: str) -> list[int]:
            write_pairs(manifest, [pair(1, manifest.parent)])
            return super().encode(text)

    with pytest.raises(UserError, match=manifest.name):
        load_index(manifest, Rewriting())
    assert not index_path(manifest).exists()


def test_columns_are_joined_and_selected_like_lists(tmp_path: Path):
    lists, indexes = [], []
    for number, folder in enumerate((tmp_path / "a", tmp_path / "b")):
        pairs = [pair(n, folder, target_text=SENTENCES[n % 5 + number]) for n in range(6 + number)]
        write_pairs(folder / "pairs.jsonl", pairs)
        lists += pairs
        indexes.append(load_index(folder / "pairs.jsonl", BASE).pairs)
    joined = PairColumns.joined(indexes)
    assert list(joined) == lists
    rows = [12, 0, 7, 7]
    assert list(joined.take(rows)) == [lists[row] for row in rows]
    for n, row in enumerate(rows):
        assert joined.take(rows).text_ids(n).tolist() == BASE.encode(lists[row].target_text)
    assert joined.take([0]).used_stores == [lists[0].features]


def test_pieces_are_counted_in_the_text_of_each_target_once(tmp_path: Path):
    pairs = [pair(number % 20, tmp_path, id=f"p{number}") for number in range(50)]
    write_pairs(tmp_path / "pairs.jsonl", pairs)
    columns = load_index(tmp_path / "pairs.jsonl", BASE).pairs
    texts = {each.target_id: each.target_text for each in pairs}.values()
    expected = Counter(token for text in texts for token in BASE.encode(text))
    assert dict(enumerate(columns.piece_counts().tolist())) == {
        token: expected[token] for token in range(max(expected) + 1)
    }
