"""What the readers of a source share: how recordings are found and columns are decided."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from indextts.data.importing.columns import AUTO, Columns, Rows, decide_columns
from indextts.data.importing.references import AudioFinder
from indextts.errors import UserError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceReader:
    """What the layouts of a source share.

    Args:
        language: of texts whose data name none.
        chosen: the columns of tables by hand, as in --columns; "" to decide.
        columns_of: of parquet files, by the names of their columns: shards are read alike.
    """

    finder: AudioFinder
    language: str
    chosen: str = ""
    columns_of: dict[tuple[str, ...], Columns] = field(default_factory=dict)

    @property
    def is_chosen(self) -> bool:
        return self.chosen not in ("", AUTO)

    def columns(self, path: Path, rows: Rows, *, has_header: bool = False) -> Columns:
        """Return the columns of a table by its first rows."""
        return decide_columns(
            rows,
            partial(self.finder.names_recording, folder=path.parent),
            language=self.language,
            chosen=self.chosen,
            has_header=has_header,
        )

    def decide(
        self, path: Path, rows: Rows, *, has_header: bool = False, shown: Sequence[str] = ()
    ) -> Columns:
        """Return the columns of a table by its first rows, and log them with the values of a row.

        Args:
            shown: the header in the file, if the first of the rows has other names.
        """
        try:
            columns = self.columns(path, rows, has_header=has_header)
        except UserError as error:
            raise type(error)(f"{path.name}: {error}") from None
        header = (shown or rows[0]) if columns.has_header else ()
        first = rows[min(columns.has_header, len(rows) - 1)]
        logger.info("%s: columns %s", path, columns.shown(first, header))
        if header and "text" in columns.names and (others := columns.other_texts(header)):
            read = header[columns.names.index("text")]
            text = "%s: texts from %s, not from %s; --columns chooses another"
            logger.warning(text, path, read, " or ".join(others))
        return columns
