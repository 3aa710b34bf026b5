"""Bars, gauges and tables of plain data, as text and as HTML, for terminals, cells and saved notebooks.

The HTML stands alone. Styles are inline, so a saved notebook, ``nbconvert`` and an untrusted page show the same. Text
inherits its colour and backgrounds are half transparent, so it is legible in light and dark themes. Colour is never the
only sign.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Sequence
from html import escape
from typing import Any

from nbdata.redaction import printable
from nbdata.sizes import format_size
from nbdata.sortable import SCRIPT, keys_attribute, sort_key

__all__ = [
    "COLORS",
    "chip",
    "dim",
    "edged",
    "gauge_lines",
    "html_bar",
    "html_gauge",
    "html_table",
    "member_cells",
    "one_line",
    "printable",
    "text_bar",
    "text_table",
    "width_of",
]

# Middle tones, with enough contrast against white and against the dark background of JupyterLab.
COLORS = {
    "moving": "#3d85d8",
    "good": "#2f9e5b",
    "waiting": "#8a8f98",
    "warning": "#d98a1f",
    "bad": "#d9483b",
    "reserved": "#8fb8e8",
}
_TRACK = "rgba(128,128,128,0.28)"
_LINE = "rgba(128,128,128,0.35)"
_NO_WRAP, _WRAP, _SHORT = ";white-space:nowrap", ";overflow-wrap:anywhere", 24


def text_bar(share: float, width: int = 24) -> str:
    """Draw a share from 0 to 1 as a bar of text."""
    filled = round(min(max(share, 0.0), 1.0) * width)
    return "━" * filled + "╌" * (width - filled)


def html_bar(parts: Sequence[tuple[float, str]], *, height: int = 8) -> str:
    """Draw shares from 0 to 1 one after the other in one bar, each with its colour (a key of `COLORS`)."""
    left, spans = 1.0, ""
    for share, color in parts:
        width = min(max(share, 0.0), left)
        left -= width
        spans += f'<div style="float:left;width:{width:.2%};height:{height}px;background-color:{COLORS[color]}"></div>'
    return (
        f'<div style="height:{height}px;margin:4px 0px;border-radius:4px;overflow:hidden;'
        f'background-color:{_TRACK}">{spans}</div>'
    )


def edged(html: str, color: str) -> str:
    """Draw a block with an edge in a colour (a key of `COLORS`)."""
    style = f"border-left:4px solid {COLORS[color]};padding:0px 0px 0px 8px;margin:4px 0px;max-width:760px"
    return f'<div style="{style}">{html}</div>'


def dim(html: str) -> str:
    """Draw a line in a fainter colour."""
    return f'<div style="opacity:0.75;font-size:92%">{html}</div>'


def one_line(text: str, *, bold: str = "") -> str:
    """A text that is cut where its place ends, and whole when the mouse rests on it."""
    style = "white-space:nowrap;overflow:hidden;text-overflow:ellipsis"
    start = f"<b>{escape(bold)}</b> " if bold else ""
    return f'<div style="{style}" title="{escape(text, quote=True)}">{start}{escape(text)}</div>'


def chip(text: str, color: str) -> str:
    """A word on a ground of a colour (a key of `COLORS`), as wide as any other."""
    red, green, blue = (int(COLORS[color][at : at + 2], 16) for at in (1, 3, 5))
    style = (
        f"display:inline-block;width:70px;text-align:center;border-radius:9px;font-size:85%;line-height:1.5;"
        f"background-color:rgba({red},{green},{blue},0.25)"
    )
    return f'<span style="{style}">{escape(text)}</span>'


def text_table(table: dict[str, Any]) -> list[str]:
    """Format a table as aligned lines, its caption first."""
    shown = (table["head"], *table["rows"], *table.get("foot", ()))
    rows = [[printable(cell) for cell in row] for row in shown]
    widths = [max(width_of(row[n]) for row in rows) for n in range(len(table["head"]))]
    lines = [
        "  ".join(
            cell + " " * (width - width_of(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    return [table["caption"], *(f"  {line}" for line in lines)]


def width_of(text: str) -> int:
    """Return the columns that a text takes in a terminal: Chinese and Japanese characters take two, accents none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)


def member_cells(size: int, kind: str, mtime: float) -> tuple[str, str]:
    """Format size and UTC time of an archive member; if it is not a file, its kind replaces the size."""
    shown = kind if kind != "file" else format_size(size) if size >= 0 else "–"
    try:
        return shown, time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(mtime))
    except (OverflowError, ValueError, OSError):  # archives may hold any number
        return shown, "–"


def html_table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], foot: Sequence[Sequence[str]] = ()
) -> str:
    """Format a table; columns of numbers except the first are aligned right, and only long cells wrap.

    A click on a head sorts the rows, where scripts run; the rows of `foot` stay last.
    """
    sides = [
        "right" if n and rows and all(row[n][:1].isdigit() or row[n] in ("", "–") for row in rows) else "left"
        for n in range(len(head))
    ]
    columns = [[sort_key(cell) for cell in cells] for cells in zip(*rows, strict=True)]
    columns = [[None] * len(keys) if None in keys else keys for keys in columns]
    pad = f"padding:2px 12px 2px 0px;vertical-align:top;border-bottom:1px solid {_LINE}"

    def line(cells: Sequence[str], tag: str) -> str:
        def style(side: str, cell: str) -> str:
            return f"text-align:{side};{pad}{_NO_WRAP if len(cell) <= _SHORT else _WRAP}"

        return "".join(
            f'<{tag} style="{style(side, cell)}">{escape(printable(cell))}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )

    keys = map(keys_attribute, zip(*columns, strict=True)) if len(rows) > 1 else [""] * len(rows)
    body = "".join(f"<tr {key}>{line(row, 'td')}</tr>" for key, row in zip(keys, rows, strict=True))
    last = "".join(f"<tr>{line(row, 'td')}</tr>" for row in foot)
    sorts = ("data-nbdata ", SCRIPT) if len(rows) > 1 else ("", "")
    # Not a caption element, which would be as narrow as the table.
    title = f'<div style="font-weight:bold;padding:4px 0px">{escape(caption)}</div>' if caption else ""
    return (
        f'{title}<table {sorts[0]}style="border-collapse:collapse;margin:4px 0px;background-color:transparent">'
        f"<thead><tr>{line(head, 'th')}</tr></thead><tbody>{body}</tbody>"
        f"{f'<tfoot>{last}</tfoot>' if foot else ''}</table>{sorts[1]}"
    )


def _shares(gauge: dict[str, Any]) -> tuple[float, float]:
    """Return used and reserved as shares of what can be used, as ``df`` does: not of what is kept for root."""
    whole = gauge["used"] + gauge["reserved"] + gauge["free"]
    return (gauge["used"] / whole, gauge["reserved"] / whole) if whole else (1.0, 0.0)


def _gauge_words(gauge: dict[str, Any]) -> list[str]:
    words = [f"{format_size(gauge['used'])} used"]
    if gauge["reserved"]:
        words.append(f"{format_size(gauge['reserved'])} reserved")
    return [*words, f"{format_size(gauge['free'])} free of {format_size(gauge['total'])}"]


def gauge_lines(gauge: dict[str, Any], width: int = 32) -> list[str]:
    """Draw a gauge as text: ``[████▒▒░░░░]``, used, reserved and free; a warning in words gets its own line."""
    used, reserved = _shares(gauge)
    filled = round(used * width)
    held = max(round((used + reserved) * width) - filled, 1 if gauge["reserved"] else 0)
    filled = max(0, min(filled, width - held))
    bar = "█" * filled + "▒" * held + "░" * (width - filled - held)
    lines = [f"{bar} {used + reserved:.0%}: {', '.join(_gauge_words(gauge))}"]
    return [*lines, gauge["warning"]] if gauge["warning"] else lines


def html_gauge(gauge: dict[str, Any]) -> str:
    """Draw a gauge as HTML."""
    used, reserved = _shares(gauge)
    color = {"": "good", "high": "warning", "full": "bad"}[gauge["level"]]
    words = [f"<b>{used + reserved:.0%}</b>", *map(escape, _gauge_words(gauge))]
    parts = [
        '<div style="max-width:600px;margin:4px 0px">',
        f"<div>{escape(gauge['label'])}</div>",
        html_bar([(used, color), (reserved, "reserved")], height=14),
        f"<div>{' · '.join(words)}</div>",
    ]
    if gauge["warning"]:
        parts.append(edged(escape(gauge["warning"]), color))
    return "".join([*parts, "</div>"])
