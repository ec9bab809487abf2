"""Output files of the import: temporary files that become clips of the project, and links to originals."""

from dataclasses import dataclass, replace
from pathlib import Path

import soundfile

from indextts.commands.data import ImportDataset
from indextts.data.importing.cleaning import Cleaning, clean_clip
from indextts.data.importing.items import SourceRecording
from indextts.data.importing.long_recordings import Cut
from indextts.errors import UserError

LINKED, WRITTEN = "linked", "written"  # outcomes of a clip with --link


@dataclass(frozen=True)
class OutputFile:
    """Temporary output file, or the link to an original, which is never moved or removed.

    Args:
        aside: the temporary file; None for a link.
        cut: set for a clip of a long recording.
        link: the original.
        gain_db: as applied by the clean-up.
        is_cleaned: the clean-up made the file from the original.
        outcomes: of the clean-up and of --link, for the log.
    """

    aside: Path | None
    suffix: str
    duration_s: float
    cut: Cut | None = None
    link: Path | None = None
    gain_db: float | None = None
    is_cleaned: bool = False
    outcomes: tuple[str, ...] = ()

    def discard(self) -> None:
        if self.aside is not None:
            self.aside.unlink()


def link_target(found: SourceRecording, command: ImportDataset) -> Path | None:
    """Return the file that a clip may link to; None for a recording that has to be written to the project."""
    is_part = found.subtitles is not None or found.span is not None or found.embedded is not None
    if not command.link or is_part:
        return None
    path = found.audio.resolve()  # a symlink could later lead outside of the allowed folders
    try:
        str(path).encode()
    except UnicodeEncodeError:  # a name that a manifest cannot contain
        return None
    is_temporary = path.is_relative_to(command.output_dir.resolve())
    return None if is_temporary else path


def finished_clip(file: OutputFile, command: ImportDataset, aside: Path) -> OutputFile:
    """Clean up the file of a clip if that is wanted, and add the outcome of --link.

    Args:
        aside: for the file that the clean-up writes.

    Raises:
        UserError: the recording cannot be read.
        OSError: `aside` cannot be written.
    """
    cleaning, path = Cleaning.of(command), file.aside or file.link
    assert path is not None
    if cleaning.is_wanted:
        try:
            cleaned = clean_clip(path, aside, cleaning)
        except (UserError, soundfile.LibsndfileError) as error:
            file.discard()
            raise UserError(str(error).removeprefix(f"{path}: ")) from None
        if cleaned.duration_s is None:
            file = replace(file, outcomes=cleaned.outcomes)
        else:
            file.discard()
            file = OutputFile(
                aside,
                ".flac",
                cleaned.duration_s,
                gain_db=cleaned.gain_db,
                is_cleaned=True,
                outcomes=cleaned.outcomes,
            )
    if command.link:
        file = replace(file, outcomes=(*file.outcomes, LINKED if file.link else WRITTEN))
    return file
