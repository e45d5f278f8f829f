"""Rows of a delimited text file, each with the number of its line. Knows text and quoting, not what columns mean.

No message of this module holds the text of a cell, nor of the header line: in a file without one, that is a record.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedsecure.data.files import composed, readable, require_file, shown
from fedsecure.errors import DataError

__all__ = ["Table", "open_table", "rows"]

#: A longer table (bytes) is not read: it would not fit into memory as records either.
MAX_TABLE_BYTES = 8 * 2**30
_SPREADSHEET = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_OTHER_DELIMITERS = {";": ";", "\t": "\\t", ",": ",", "|": "|"}


@dataclass(frozen=True, slots=True)
class Table:
    """A table that was opened and whose header line was read; ``header`` holds the column names (``line`` of the
    file) ``composed``, as they are compared. ``place``: where the keys are set that hints name, as in `` in [table] of
    analyst.toml``; empty where that goes without saying."""

    path: Path
    encoding: str
    delimiter: str
    header: tuple[str, ...]
    line: int
    place: str = ""

    @property
    def where(self) -> str:
        """How messages call the file."""
        return shown(self.path)

    def position(self, column: str, key: str) -> int:
        """Index of ``column``; ``key`` is what names it in the configuration. Raises ``DataError`` when it is absent
        or there twice."""
        found = [i for i, name in enumerate(self.header) if name == composed(column)]
        if len(found) == 1:
            return found[0]
        where = f"{self.where}: line {self.line}"
        if found:
            raise DataError(f"{where}: column '{shown(column)}' is there {len(found)} times ({key})")
        raise DataError(
            f"{where}: no column '{shown(column)}' ({key}) among the {len(self.header)} of the header line",
            hint=self.header_hint() or f"map the plan's column names to the file's with columns{self.place}",
        )

    def header_hint(self) -> str:
        """What may be wrong with the header line as a whole, or nothing."""
        if self.header[0].lower().startswith("sep="):
            return "remove the line that begins with sep="
        other = [d for d in _OTHER_DELIMITERS if d != self.delimiter and d in "".join(self.header)]
        if len(self.header) > 1 or not other:
            return ""
        return f'the whole line is one column: set delimiter = "{_OTHER_DELIMITERS[other[0]]}"{self.place}?'


def open_table(path: Path, encoding: str, delimiter: str, place: str = "") -> Table:
    """Check the file and read its header line. Raises ``DataError`` naming the file, the line and what to set, and
    ``place``, where."""
    if require_file(path) > MAX_TABLE_BYTES:
        raise DataError(f"{shown(path)}: larger than {MAX_TABLE_BYTES} bytes", hint="take part with fewer rows")
    _check_encoding(path, encoding, place)
    with readable(path), path.open("rb") as raw:
        if raw.read(4) in _SPREADSHEET:
            raise DataError(f"{shown(path)}: a spreadsheet, not a text table", hint="export it as CSV")
    line, header = next(_records(path, encoding, delimiter, place), (1, []))
    if not any(name.strip() for name in header):
        raise DataError(f"{shown(path)}: holds no header line", hint="the first line names the columns")
    return Table(path, encoding, delimiter, tuple(map(composed, header)), line, place)


def rows(table: Table) -> Iterator[tuple[int, list[str]]]:
    """(line number from 1, cells without spaces around) of each record; lines that are wholly empty are passed over.

    A record with line breaks inside quotes has the number of its first line. The number of cells is not checked here.
    """
    records = _records(table.path, table.encoding, table.delimiter, table.place)
    next(records, None)
    for line, cells in records:
        yield line, [cell.strip() for cell in cells]


def _check_encoding(path: Path, encoding: str, place: str) -> None:
    try:
        "".encode(encoding)
        codecs.getincrementaldecoder(encoding)
    except (LookupError, UnicodeError, ValueError):
        raise DataError(
            f"{shown(path)}: encoding '{shown(encoding)}' is not known",
            hint=f'set encoding{place}, for example "utf-8-sig", "cp1252" or "utf-16"',
        ) from None


def _records(path: Path, encoding: str, delimiter: str, place: str) -> Iterator[tuple[int, list[str]]]:
    line = 1
    try:
        with readable(path), path.open("r", encoding=encoding, newline="") as text:
            reader = csv.reader(text, delimiter=delimiter, strict=True)
            for cells in reader:
                if any("\0" in cell for cell in cells):
                    raise DataError(
                        f"{shown(path)}: line {line}: holds NUL characters, so it is not text in {encoding}",
                        hint=f'set encoding{place}, for example "utf-16"',
                    )
                if cells:
                    yield line, cells
                line = reader.line_num + 1
    except UnicodeError:
        raise DataError(
            f"{shown(path)}: line {_undecodable_line(path, encoding)}: not text in {encoding}",
            hint=f'save it as UTF-8, or set encoding{place}, for example "cp1252" or "utf-16"',
        ) from None
    except csv.Error as error:
        raise DataError(
            f"{shown(path)}: line {line}: {_fault(str(error), reader.line_num > line)}",
            hint='a quote inside a quoted cell is written twice: ""',
        ) from None


def _fault(error: str, many_lines: bool) -> str:
    """What the reader says of a row that it was in, over ``many_lines`` perhaps; without the text of a cell."""
    if "larger" in error:
        long = f"a cell of more than {csv.field_size_limit()} characters"
        return f"{long} over many lines: a quote that is never closed?" if many_lines else long
    return "a quote that is never closed" if "end of data" in error else "wrong quoting"


def _undecodable_line(path: Path, encoding: str) -> int:
    """Number of the line at which decoding fails."""
    decoder = codecs.getincrementaldecoder(encoding)()
    line = 1
    with path.open("rb") as raw:
        for chunk in raw:
            try:
                line += decoder.decode(chunk).count("\n")
            except UnicodeError:
                return line
    return line
