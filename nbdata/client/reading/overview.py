"""An overview of samples: as text, as data, and in a notebook with pictures of the first ones."""

from __future__ import annotations

import base64
import io
import weakref
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any, Protocol

from nbdata.client.reading.report import ReadReport, left_out_line
from nbdata.client.reading.source import Source
from nbdata.errors import NbdataError
from nbdata.formats.decoding import is_image
from nbdata.formats.decoding_bounds import Budget, open_image, refuse_large_image
from nbdata.formats.pixels import with_8_bits
from nbdata.rendering import dim, html_table, printable
from nbdata.sizes import format_size

__all__ = ["READERS", "html", "text", "to_dict"]

# How many samples a notebook shows, and the largest size of one whose picture is fetched.
_SHOWN, _FETCHED = 6, 2 << 20
# Most bytes that a picture takes while it is made small: 12 million pixels, since nobody asked for them.
_PREVIEW = 128 << 20
# Pixels of a picture's longer side.
_PIXELS = 96
# Most fields that are listed.
_FIELDS = 12


class _Samples(Protocol):
    """The part of `nbdata.client.reading.samples.Samples` that an overview needs."""

    def __len__(self) -> int: ...
    def key(self, number: int) -> str: ...
    def size(self, number: int) -> int: ...
    def fetch(self, indices: Sequence[int]) -> list[Any]: ...

    @property
    def sources(self) -> list[Source]: ...


class _Reader(Protocol):
    @property
    def sources(self) -> list[Source]: ...

    @property
    def report(self) -> ReadReport: ...


#: Samples and loaders of this process that have read something.
READERS: weakref.WeakSet[_Reader] = weakref.WeakSet()


def _fields(samples: _Samples) -> dict[str, tuple[int, int]]:
    fields: dict[str, tuple[int, int]] = {}
    for source in samples.sources:
        for name, (count, size) in source.fields.items():
            before = fields.get(name, (0, 0))
            fields[name] = (before[0] + count, before[1] + size)
    return fields


def _rows(samples: _Samples) -> list[list[str]]:
    fields = sorted(_fields(samples).items(), key=lambda field: -field[1][1])
    rows = [
        [printable(name), f"{count:,}", format_size(size), format_size(size / max(1, count))]
        for name, (count, size) in fields
    ]
    if len(rows) > _FIELDS:
        rows[_FIELDS:] = [[f"and {len(rows) - _FIELDS:,} more", "", "", ""]]
    return rows


_HEAD = ("field", "objects", "in all", "each")


def _left_out(samples: _Samples) -> str:
    count = sum(source.left_out[0] for source in samples.sources)
    if not count:
        return ""
    names = [name for source in samples.sources for name in source.left_out[1]][:5]
    return left_out_line(count, names)


def text(samples: _Samples) -> str:
    """Describe the samples in a few lines."""
    rows = [list(_HEAD), *_rows(samples)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
    lines = [
        f"  {row[0]:{widths[0]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]
    return "\n".join([repr(samples), *(line.rstrip() for line in lines), *filter(None, [_left_out(samples)])])


def to_dict(samples: _Samples) -> dict[str, Any]:
    """Describe the samples as data."""
    return {
        "samples": len(samples),
        "bytes": sum(size for _, size in _fields(samples).values()),
        "fields": {name: {"objects": n, "bytes": size} for name, (n, size) in _fields(samples).items()},
        "left_out": sum(source.left_out[0] for source in samples.sources),
        "left_out_names": [name for source in samples.sources for name in source.left_out[1]],
    }


def html(samples: _Samples) -> str:
    """Describe the samples as HTML: the first ones, their pictures, and what this process has read of them."""
    parts = [
        f"<div><b>{escape(repr(samples))}</b></div>",
        html_table("", _HEAD, _rows(samples)),
        _first(samples),
    ]
    if note := _left_out(samples):
        parts.append(dim(escape(note)))
    own = set(map(id, samples.sources))
    for reader in list(READERS):
        report = replace(reader.report, left_out=0)
        if own & set(map(id, reader.sources)) and report.samples:
            title = f"<b>Read by this process</b> (a {escape(type(reader).__name__)}):"
            parts += [f"<div>{title}</div>", report._repr_html_()]
    return "".join(parts)


def _first(samples: _Samples) -> str:
    """Show the first samples side by side, with a picture where there is one that is not too large to fetch."""
    shown = range(min(_SHOWN, len(samples)))
    wanted = [number for number in shown if samples.size(number) <= _FETCHED]
    try:
        samples_by_number = dict(zip(wanted, samples.fetch(wanted), strict=True)) if wanted else {}
    except NbdataError as error:
        return dim(escape(f"the first samples cannot be read: {error}"))
    cells = ""
    for number in shown:
        items = samples_by_number.get(number, [])
        one = items if isinstance(items, dict) else next(iter(items), {})
        picture = next(filter(None, (_picture(name, data) for name, data in one.items())), "")
        key = samples.key(number)
        heading = escape(printable(key if len(key) <= 24 else f"…{key[-23:]}"))
        cells += (
            f'<div style="float:left;width:{_PIXELS + 12}px;margin:4px 8px 4px 0px">{picture}'
            f"{dim(f'{number}: {heading}<br>{format_size(samples.size(number))}')}</div>"
        )
    return f'<div style="overflow:hidden">{cells}</div>'


def _picture(name: str, data: object) -> str:
    """Return a small picture as HTML; empty if the data is no picture, or cannot be made small."""
    if not isinstance(data, bytes) or name.startswith("__") or not is_image(name, data):
        return ""
    try:
        with open_image(data) as opened:
            refuse_large_image(opened, Budget(_PREVIEW))
            plain = with_8_bits(opened)
            plain.thumbnail((_PIXELS, _PIXELS))
            small = plain.convert("RGB")
        out = io.BytesIO()
        small.save(out, "JPEG", quality=70)
    except Exception:  # a broken picture must not hide the rest
        return ""
    coded = base64.b64encode(out.getvalue()).decode()
    return f'<img src="data:image/jpeg;base64,{coded}" alt="{escape(name, quote=True)}">'
