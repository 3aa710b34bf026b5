"""Shows the beginning of an object as text or as a table, in a bounded number of characters. Pure functions.

JSON is indented, and of a notebook the cells and their text outputs are shown. What cannot be parsed is shown as it is.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["MOST_CHARACTERS", "MOST_COLUMNS", "MOST_ROWS", "notebook_text", "pretty", "table_of", "text_of"]

#: Most characters of a text.
MOST_CHARACTERS = 256 << 10
#: Most rows of a table, below its head, and most columns.
MOST_ROWS, MOST_COLUMNS = 200, 50
# Most characters of a cell.
_CELL = 200
# The share of odd characters up to which bytes are text: one in 20.
_ODD = 20
_BOMS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def text_of(data: bytes) -> str | None:
    """Return bytes as text with ``\\n`` between its lines; None if they are not text.

    The last character may be cut off.
    """
    encoding = _BOMS.get(data[:2])
    if encoding is not None:
        text = data[2:].decode(encoding, "replace")
    else:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    text = text.removesuffix("\ufffd").replace("\r\n", "\n").replace("\r", "\n")
    odd = sum(not (char.isprintable() or char in "\t\n\f") or char == "\ufffd" for char in text)
    return text if odd * _ODD <= len(text) else None


def pretty(text: str) -> str | None:
    """Return JSON with an item a line, cut after `MOST_CHARACTERS`; None if it is not JSON."""
    try:
        return _cut(json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(text)))
    except (ValueError, RecursionError):
        return None


def notebook_text(text: str) -> str | None:
    """Return the cells of a notebook and the text of their outputs, cut as in `pretty`; None if it is no notebook.

    Of an output that is not text, only its kinds are named.
    """
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        return None
    return _cut(f"{part}\n\n" for cell in cells if isinstance(cell, dict) for part in _parts(cell))


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    kind = cell.get("cell_type")
    count = cell.get("execution_count")
    name = f"In [{count if isinstance(count, int) else ' '}]:" if kind == "code" else f"{kind}:"
    yield f"{name}\n{_joined(cell.get('source'))}"
    for output in _items(cell.get("outputs")):
        if isinstance(output, dict) and (said := _output(output)):
            yield f"Out:\n{said}"


def _output(output: dict[str, Any]) -> str:
    if output.get("output_type") == "error":
        return f"{output.get('ename')}: {output.get('evalue')}"
    data = output.get("data")
    kinds = data if isinstance(data, dict) else {}
    said = _joined(output.get("text")) or _joined(kinds.get("text/plain"))
    others = [str(kind) for kind in kinds if kind != "text/plain"]
    return said or (f"({', '.join(others)})" if others else "")


def _joined(value: object) -> str:
    return value if isinstance(value, str) else "".join(one for one in _items(value) if isinstance(one, str))


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _cut(pieces: Iterable[str]) -> str:
    """Join pieces until there are enough characters: a few bytes of JSON may be as many lines, each indented far."""
    found, length = list[str](), 0
    for piece in pieces:
        found.append(piece)
        length += len(piece)
        if length > MOST_CHARACTERS:
            break
    return "".join(found)[: MOST_CHARACTERS + 1]


def table_of(text: str, separator: str, *, whole: bool) -> tuple[list[list[str]], bool] | None:
    """Return the first rows of a table, and whether that is all of it; None if it cannot be parsed.

    Cells are text, whatever a spreadsheet would take them for.

    Parameters
    ----------
    text : str
    separator : str
        ``","`` or a tab. Where the first line has a semicolon and no comma, that separates.
    whole : bool
        False if the text is cut: its last line is left out then.
    """
    first = text.partition("\n")[0]
    if separator == "," and "," not in first and ";" in first:
        separator = ";"
    if not whole:
        text = text.rpartition("\n")[0] or text
    try:
        rows = list(
            itertools.islice(csv.reader(io.StringIO(text, newline=""), delimiter=separator), MOST_ROWS + 1)
        )
    except csv.Error:
        return None
    is_all = whole and len(rows) <= MOST_ROWS and all(len(row) <= MOST_COLUMNS for row in rows)
    return [[_short(cell) for cell in row[:MOST_COLUMNS]] for row in rows[:MOST_ROWS]], is_all


def _short(cell: str) -> str:
    return cell if len(cell) <= _CELL else f"{cell[: _CELL - 1]}…"
