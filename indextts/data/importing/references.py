r"""Find the recordings that the data of a source name, also those that were moved or renamed since.

    as named                  from the folder of the row's file, one above it, or that of the layout
    by the end of the path    C:\Users\me\set\a\1.wav, /content/drive/set/a/1.wav, file:///set/a/1%20b.wav
    by name                   in any folder of the source
    by name without suffix    1 or 1.mp3 for 1.wav
    by number                 1 or 1.0 for 0001.wav; 1.2E+12, as spreadsheets write 1200000000001

Case and Unicode form do not count, except to choose among several. The longest end of the path decides, then
the nearest folder: the data of a split name recordings of that split. What is then not a single recording is
refused, because a row with the recording of another would train the model on a wrong text. So is the
recording of another folder (bekele/1.wav for almaz/1.wav, test/1.wav for train/1.wav), unless one of the two
folders only tells that it has recordings, such as wavs.
"""

import os
import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from indextts.data.importing.archive import InnerArchives
from indextts.data.importing.items import AUDIO_SUFFIXES, SNDFILE_SUFFIXES, Problem, is_hidden

USUAL_FOLDERS = ("wavs", "wav", "audio", "clips")
WAYS = ("as named", "by the end of the path", "by name", "by name without suffix", "by number")
AS_NAMED, BY_END, BY_NAME, BY_STEM, BY_NUMBER = WAYS
_USUAL_SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a")
_MAX_NAME_CHARS = 4096  # texts are looked for too, when columns are decided
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_OTHER_SUFFIX = re.compile(r"\.[a-z][a-z0-9]{0,4}$")  # not the end of take1.5
_FOREIGN = re.compile(r"[\\/]|[A-Za-z]:[\\/]|[A-Za-z][A-Za-z0-9+.-]+://")  # of this or another machine
# Folders that neither a speaker nor a split is named after: audio, wavs_24k, clips.
_ANY_FOLDER = re.compile(
    r"(?:wav|wave|audio|clip|recording|record|sound|voice|file|data|dataset|mp3|flac|ogg)s?(?:[_-]?[0-9]+k(?:hz)?)?"
)
_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_FLOAT = re.compile(r"([0-9]+)[.,]0+")
_ROUNDED = re.compile(r"([0-9])(?:[.,]([0-9]+))?e\+?([0-9]{1,2})")


_Rank = tuple[int, bool, bool, bool]


@dataclass(frozen=True, slots=True)
class Found:
    """Recording, and the way in which it was found."""

    path: Path
    way: str
    length: int = 0  # of the end of the path that led to it, in parts
    is_in_place: bool = True  # its path is as named, below the first folder

    @property
    def rank(self) -> tuple[int, int]:
        """Lower for a better match."""
        return WAYS.index(self.way), -self.length


class Recordings:
    """Recordings of a source, within allowed folders. Files are listed once, if one is not as named.

    Args:
        allowed: the allowed folders, resolved; empty for the entire machine.
        archives: those in the source, which are unpacked if a recording is not in its place.
        known: the paths of all files; None for those on the disk.
    """

    def __init__(
        self,
        root: Path,
        allowed: Sequence[Path] = (),
        archives: InnerArchives | None = None,
        known: Collection[Path] | None = None,
    ) -> None:
        self.root = root
        self._allowed = allowed
        self._archives = archives
        self._known = known
        self._index: _Index | None = None
        self._near: dict[tuple[Path, ...], list[str]] = {}
        self._is_unpacked = archives is None

    def find(self, named: str, folder: Path, folders: Sequence[Path] = ()) -> Found | Problem:
        """Return the recording that a row of a file in `folder` names, or the problem; `folders` come first.

        An archive of the source that is corrupt or refused is a UserError.
        """
        places = self._places(folder, folders)
        slashed = unquote(named[7:]) if named.startswith("file://") else named.replace("\\", "/")
        path = Path()
        for name in dict.fromkeys((named, slashed)):
            for place in places:
                path = Path(os.path.normpath(name if name.startswith("/") else f"{place}/{name}"))
                if self._exists(path) and self._may_read(path):
                    return Found(path, AS_NAMED)
                if path.name and not path.is_relative_to(self.root) and _without_suffix(name) == name:
                    # files outside of the source are not listed
                    paths = (path.with_name(path.name + suffix) for suffix in _USUAL_SUFFIXES)
                    if beside := next(filter(self._may_read, filter(self._exists, paths)), None):
                        return Found(beside, BY_STEM)
                if name.startswith("/"):
                    break
        found = self._search(named, places)
        if not self._is_unpacked and not (isinstance(found, Found) and found.is_in_place):
            self._is_unpacked, self._index = True, None
            found = self._search(named, places)
        if found is None and not self._may_read(path):
            return "outside", f"{named} is outside the allowed folders, and not in the source"
        missing = f"{named}: the recording does not exist; restore it or remove its row"
        return found or ("missing_audio", missing)

    def _places(self, folder: Path, folders: Sequence[Path]) -> list[str]:
        """Return the folders where a recording is looked for, the nearest first."""
        key = (folder, *folders)
        if key not in self._near:
            above = (place for place in folder.parents if place.is_relative_to(self.root))
            self._near[key] = [str(place) for place in dict.fromkeys((*folders, folder, *above))]
        return self._near[key]

    def _exists(self, path: Path) -> bool:
        if self._known is not None:
            return path in self._known
        try:
            return path.is_file()
        except OSError:  # a link that leads to itself, or too long a name
            return False

    def _may_read(self, path: Path) -> bool:
        """Return whether the file, after resolving symlinks, is within the allowed folders."""
        if not self._allowed:
            return True
        allowed = (*self._allowed, *([self._archives.folder] if self._archives is not None else []))
        try:
            real = path.resolve()
        except (OSError, RuntimeError, ValueError):  # a symlink loop, or no valid name
            return False
        return any(real.is_relative_to(folder) for folder in allowed)

    def _search(self, named: str, places: Sequence[str]) -> Found | Problem | None:
        """Return the recording with the longest end of a path, in the nearest of the places."""
        parts = _parts(named)
        if not parts or len(named) > _MAX_NAME_CHARS:
            return None
        if self._index is None:
            self._index = _Index(self._listed())
        length, like = self._index.closest(parts)
        written = re.split(r"[\\/]", named)[-1]
        # many rows may name the same end of a path, with as many candidates each
        key = (*parts[-max(length, 1) :], written, *places)
        if key not in self._index.best:
            self._index.best[key] = self._best(written, parts, like, places)
        best, candidates = self._index.best[key]
        if not candidates:
            return ("outside", f"{named} is a link that leads out of the allowed folders") if like else None
        first, *others = candidates
        stem = first.rpartition(".")[0]  # that of all, if they are one recording in several formats
        if other := next((name for name in others if name.rpartition(".")[0] != stem), ""):
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            reason = f"{named}: {first} and {other}{more} match; write the folder too, or remove one"
            return "ambiguous_audio", reason
        if length < len(parts) and self._index.is_elsewhere(first, parts, is_foreign=_FOREIGN.match(named)):
            reason = f"{named}: the recording does not exist; {first} is of another folder; correct the path"
            return "missing_audio", reason
        way = BY_NUMBER if not length else BY_END if length > 1 else BY_STEM if best[2] else BY_NAME
        return Found(Path(self._index.paths[first]), way, length, best[0] == 0 and length == len(parts))

    def _best(
        self, written: str, parts: Sequence[str], like: Sequence[str], places: Sequence[str]
    ) -> tuple[_Rank, list[str]]:
        """Return the best rank of the recordings that may be read, and those that have it."""
        paths = self._index.paths if self._index is not None else {}
        candidates = [name for name in like if self._may_read(Path(paths[name]))]
        near = [place[len(str(self.root)) + 1 :] for place in places if Path(place).is_relative_to(self.root)]

        def rank(name: str) -> _Rank:
            base = name.rpartition("/")[2]
            is_other_stem = base.rpartition(".")[0] != _without_suffix(written)
            distance = next(
                n for n, place in enumerate((*near, "")) if not place or name.startswith(f"{place}/")
            )
            return distance, base != written, _plain(base) != parts[-1], is_other_stem

        ranks = {name: rank(name) for name in candidates}
        best = min(ranks.values(), default=(0, False, False, False))
        candidates = sorted((name for name in candidates if ranks[name] == best), key=_preference)
        if len(parts) == 1:  # as in LJSpeech
            usual = [name for name in candidates if Path(name).parent.name in USUAL_FOLDERS]
            candidates = usual or candidates
        return best, candidates

    def _listed(self) -> Iterator[tuple[str, str]]:
        """Yield the recordings as paths in the source, where archives count as unpacked, and on the disk."""
        bases = [self.root]
        if self._archives is not None and self._is_unpacked:
            self._archives.unpack()
            bases.append(self._archives.folder)
        for base in bases:
            files = self._files_in(base) if self._known is None else map(str, self._known)
            yield from ((path[len(str(base)) + 1 :], path) for path in files if _without_suffix(path) != path)

    def _files_in(self, base: Path) -> Iterator[str]:
        """Yield the files below a folder, also in linked folders of elsewhere, each only once."""
        seen = {os.path.realpath(base)}

        def is_new(folder: Path) -> bool:
            if is_hidden(Path(folder.name)):
                return False
            if not folder.is_symlink():
                return True
            real = os.path.realpath(folder)
            if any(os.path.commonpath((real, other)) in (real, other) for other in seen):
                return False
            seen.add(real)
            return self._may_read(Path(real))

        for place, folders, names in os.walk(base, followlinks=True):
            folders[:] = [name for name in sorted(folders) if is_new(Path(place, name))]
            yield from (f"{place}/{name}" for name in sorted(names) if not name.startswith("."))


class _Index:
    """Recordings by each end of their paths without suffix, and by number, from paths in the source."""

    def __init__(self, files: Iterator[tuple[str, str]]) -> None:
        self.paths = dict(files)
        self.best: dict[tuple[str, ...], tuple[_Rank, list[str]]] = {}  # of the ends that rows name
        self._folders: set[str] = set()
        self._rounded: dict[str, list[str]] = {}
        self._by_end: defaultdict[str, list[str]] = defaultdict(list)
        self._by_number: defaultdict[str, list[str]] = defaultdict(list)
        numbers: list[tuple[int, str]] = []
        for name in self.paths:
            *folders, last = _plain(name.rpartition(".")[0]).split("/")
            end = last
            self._folders.update(folders)
            self._by_end[end].append(name)
            for folder in reversed(folders):
                end = f"{folder}/{end}"
                self._by_end[end].append(name)
            self._by_number[_ZEROS.sub("", last)].append(name)
            if last.isascii() and last.isdecimal():
                numbers.append((int(last), name))
        self._numbers = sorted(numbers)

    def closest(self, parts: Sequence[str]) -> tuple[int, list[str]]:
        """Return the length of the longest end of a path that recordings have, and these; 0 by number."""
        last = _without_suffix(parts[-1])
        stems = dict.fromkeys((last, _OTHER_SUFFIX.sub("", parts[-1])))
        for length in range(len(parts), 0, -1):
            for stem in stems:
                end = "/".join((*parts[len(parts) - length : -1], stem))
                if found := self._by_end.get(end):
                    return length, found
        if last in self._rounded:
            return 0, self._rounded[last]
        if rounded := _ROUNDED.fullmatch(last):
            digits = rounded[1] + (rounded[2] or "")
            unit = 10 ** int(rounded[3]) // 10 ** (len(digits) - 1)  # of the last digit
            bounds = ((2 * int(digits) * unit + side * unit + 1) // 2 for side in (-1, 1))
            start, stop = (bisect_left(self._numbers, (bound, "")) for bound in bounds)
            self._rounded[last] = [name for _, name in self._numbers[start:stop]]
            return 0, self._rounded[last]
        whole = _FLOAT.fullmatch(last)
        return 0, self._by_number.get(_ZEROS.sub("", whole[1] if whole else last), [])

    def is_elsewhere(self, name: str, parts: Sequence[str], *, is_foreign: object) -> bool:
        """Return whether a recording is of another folder than the one of a path that rows name."""
        written, folders = parts[:-1], _plain(name).split("/")[:-1]
        if is_foreign:  # only its last folder is likely to be one of the source
            return not self._folders.isdisjoint(set(written[-1:]).difference(folders))
        told, other = (
            {each for each in names if not _ANY_FOLDER.fullmatch(each)} for names in (written, folders)
        )
        if not self._folders.isdisjoint({*told, *written[-1:]}.difference(folders)):
            return True
        return bool(told and other) and told.isdisjoint(other)


def comparable(named: str) -> str:
    """Return the path that a row names in a form that is the same for all ways to write it."""
    return "/".join(_parts(named))


def _plain(name: str) -> str:
    """Return a name in the form in which names are compared."""
    return unicodedata.normalize("NFC", unquote(name) if "%" in name else name).casefold()


def _parts(named: str) -> list[str]:
    """Return the comparable parts of a path of any system, or of an address."""
    if _ADDRESS.match(named):
        named = named.partition("://")[2] if named.startswith("file:") else re.split(r"[?#]", named)[0]
    parts = re.split(r"[\\/]+", _plain(named))
    return [part for part in parts if part not in ("", ".", "..") and not re.fullmatch("[a-z]:", part)]


def _without_suffix(name: str) -> str:
    stem, dot, suffix = name.rpartition(".")
    return stem if f"{dot}{suffix.lower()}" in AUDIO_SUFFIXES else name


def _preference(name: str) -> tuple[bool, bool, str]:
    """Return the rank of a recording among those of the same name with other suffixes."""
    suffix = Path(name).suffix.lower()
    return suffix not in SNDFILE_SUFFIXES, suffix not in (".wav", ".flac"), suffix
