"""The meta record inside a checkpoint, and the checksums of its file, read without torch.

    model_step{N}.pth   a zip of torch.save: uncompressed records, each with its CRC-32
      NAME/data.pkl     pickle of the dict; the value of its key "meta" has only plain values
      NAME/data/{K}     the bytes of tensor K

A checkpoint without a readable `.json` is known by this record. The pickle is never executed: `_Pickle`
follows the opcodes that torch.save writes, and puts None in the place of everything that is not plain.
"""

import json
import pickletools
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MAX_PICKLE_BYTES = (
    32 << 20
)  # it holds the pieces of a tokenizer and the names of the tensors: a few megabytes
CHUNK_BYTES = 1 << 20


def read_record(path: Path) -> str | None:
    """Return the meta record in the checkpoint at `path` as JSON; None if another program wrote the file.

    Raises:
        ValueError: the file cannot be read, or is not a complete file of torch.save; with the reason.
    """
    with _archive(path) as archive:
        try:
            content = _content(archive)
            return json.dumps(content["meta"]) if isinstance(content, dict) and "meta" in content else None
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"its data.pkl is not of torch.save: {error}") from None


def top_level_keys(path: Path) -> frozenset[str] | None:
    """Return the top-level keys of the dict in a checkpoint.

    None if the file is missing or corrupt, is no file of torch.save in this format, or contains no dict.
    """
    try:
        with _archive(path) as archive:
            content = _content(archive)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return frozenset(map(str, content)) if isinstance(content, dict) else None


def _content(archive: zipfile.ZipFile) -> object:
    names = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(names) != 1:
        raise ValueError("it has no data.pkl")
    num_bytes = archive.getinfo(names[0]).file_size
    if num_bytes > MAX_PICKLE_BYTES:
        raise ValueError(f"its data.pkl has {num_bytes:,} bytes")
    return _Pickle().read(archive.read(names[0]))


def verify_records(path: Path) -> None:
    """Read the checkpoint at `path` and compare every record with its CRC.

    Raises:
        ValueError: the file is corrupt or cannot be read; with the reason.
    """
    with _archive(path) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as record:
                while record.read(CHUNK_BYTES):  # raises BadZipFile at the end
                    pass


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open the zip of a checkpoint; whatever is wrong with it becomes a ValueError that names the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("it is compressed")
            yield archive
    except OSError as error:
        raise ValueError(f"{path.name}: {error.strerror or error}") from None
    # zipfile raises NotImplementedError and RuntimeError for features that torch.save does not use
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
        raise ValueError(f"{path.name} is truncated, corrupt or not a checkpoint ({error})") from None


ORDERED_DICT = object()  # in the place of the class


class _Pickle:
    """A reader of pickles that builds dicts, lists, strings and numbers, and calls nothing."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def read(self, pickled: bytes) -> object:
        """Return the pickled object, with None in the place of tensors, tuples and other objects.

        An OrderedDict, as a file of weights has at its top, becomes a dict.

        Raises:
            ValueError, LookupError, TypeError, AttributeError: not a pickle of torch.save.
        """
        for opcode, argument, _ in pickletools.genops(pickled):
            OPCODES[opcode.name](self, argument)
        return self.stack.pop()

    def put(self, argument: Any) -> None:
        self.memo[argument] = self.stack[-1]

    def get(self, argument: Any) -> None:
        self.stack.append(self.memo[argument])

    def mark(self, _: Any) -> None:
        self.marks.append(len(self.stack))

    def push(self, argument: Any) -> None:
        self.stack.append(argument)

    def append(self, _: Any) -> None:
        value = self.stack.pop()
        self._extend([value])

    def appends(self, _: Any) -> None:
        self._extend(self._above_mark())

    def set_item(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._update([key, value])

    def set_items(self, _: Any) -> None:
        self._update(self._above_mark())

    def global_name(self, argument: Any) -> None:
        self.stack.append(ORDERED_DICT if argument == "collections OrderedDict" else None)

    def reduce(self, _: Any) -> None:
        self.stack.pop()
        self.stack.append({} if self.stack.pop() is ORDERED_DICT else None)

    def tuple(self, _: Any) -> None:
        self._above_mark()
        self.stack.append(None)

    def _above_mark(self) -> list[Any]:
        start = self.marks.pop()
        above = self.stack[start:]
        del self.stack[start:]
        return above

    def _extend(self, values: list[Any]) -> None:
        if isinstance(self.stack[-1], list):  # otherwise it is an object that is not plain
            self.stack[-1].extend(values)

    def _update(self, pairs: list[Any]) -> None:
        if isinstance(self.stack[-1], dict):
            self.stack[-1].update(zip(pairs[::2], pairs[1::2], strict=True))


def _replacing(number: int) -> Callable[[_Pickle, Any], None]:
    """Return an operation that replaces the upper `number` values by None: an object that is not plain."""

    def replace(reader: _Pickle, _: Any) -> None:
        for _value in range(number):
            reader.stack.pop()
        reader.stack.append(None)

    return replace


OPCODES: dict[str, Callable[[_Pickle, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda reader, _: None),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _Pickle.put),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _Pickle.get),
    **dict.fromkeys(("BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"), _Pickle.push),
    "NONE": lambda reader, _: reader.push(None),
    "NEWTRUE": lambda reader, _: reader.push(True),
    "NEWFALSE": lambda reader, _: reader.push(False),
    "EMPTY_DICT": lambda reader, _: reader.push({}),
    "EMPTY_LIST": lambda reader, _: reader.push([]),
    "MARK": _Pickle.mark,
    "APPEND": _Pickle.append,
    "APPENDS": _Pickle.appends,
    "SETITEM": _Pickle.set_item,
    "SETITEMS": _Pickle.set_items,
    # an OrderedDict becomes a dict; other classes and calls become None
    "GLOBAL": _Pickle.global_name,
    "REDUCE": _Pickle.reduce,
    # tuples, tensors and other objects become None
    "TUPLE": _Pickle.tuple,
    "EMPTY_TUPLE": _replacing(0),
    **dict.fromkeys(("TUPLE1", "BINPERSID"), _replacing(1)),
    **dict.fromkeys(("TUPLE2", "NEWOBJ"), _replacing(2)),
    "TUPLE3": _replacing(3),
    "BUILD": lambda reader, _: reader.stack.pop() and None,
}
