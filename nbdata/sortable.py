"""Sorts tables in cells by a click, without a kernel: in a notebook, a saved one, and a page that nbconvert makes.

Where scripts do not run (an untrusted notebook, GitHub), the table looks as it was made, and nothing offers to sort it.
The script stands with each table, because each may be alone in its page; of several in a page, the first one listens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape

__all__ = ["SCRIPT", "UNKNOWN", "keys_attribute", "sort_key"]

_UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?) ?(B|[kMGTP]B|%)?(?:/s)?")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)? (?:h|min|s) ?)+")
#: The key of a value that is missing: less than any other.
UNKNOWN = -1.0

#: Sorts the rows of ``data-nbdata-k`` (keys of the columns, null for the cell's text). A click on a head sorts by its
#: column, numbers with the largest first, and a second click the other way round. A table that is drawn again has a
#: name in ``data-nbdata``: its order and its focus stay.
SCRIPT = """<script>(d => {
const heads = "table[data-nbdata] thead th, [data-nbdata] [data-nbdata-n]";
const isFirst = !window.nbdataSorts, kept = window.nbdataSorts ??= {};
const boxOf = h => h.closest("[data-nbdata]"), nOf = h => h.dataset.nbdataN ? +h.dataset.nbdataN : h.cellIndex;
const sort = (h, again) => {
  const box = boxOf(h), n = nOf(h), body = box.tBodies ? box.tBodies[0] : box.querySelector("[data-nbdata-rows]");
  const key = r => JSON.parse(r.dataset.nbdataK)[n] ?? r.cells[n].textContent;
  const rows = [...body.children].map((r, i) => [key(r), i, r]), number = typeof rows[0][0] === "number";
  const down = again ?? (h.dataset.nbdataDown ? h.dataset.nbdataDown === "false" : number);
  rows.sort(([a, i], [b, j]) =>
    (down ? -1 : 1) * (number ? a - b : a.localeCompare(b, undefined, {numeric: true})) || i - j);
  rows.forEach(row => body.append(row[2]));
  box.querySelectorAll(heads).forEach(o => { delete o.dataset.nbdataDown; o.removeAttribute("aria-sort");
    o.querySelector("[data-nbdata-arrow]")?.remove(); });
  h.dataset.nbdataDown = down;
  if (h.tagName === "TH") h.setAttribute("aria-sort", down ? "descending" : "ascending");
  const arrow = d.createElement("span");
  arrow.dataset.nbdataArrow = ""; arrow.setAttribute("aria-hidden", "true"); arrow.textContent = down ? " ▾" : " ▴";
  h.append(arrow);
  if (box.dataset.nbdata) kept[box.dataset.nbdata] = {n, down};
};
d.querySelectorAll(heads).forEach(h => { h.tabIndex = 0; h.style.cursor = "pointer"; h.title = "Sort"; });
d.querySelectorAll("[data-nbdata-heads]").forEach(h => { h.style.display = "block"; });
d.querySelectorAll("[data-nbdata]").forEach(box => {
  const name = box.dataset.nbdata, at = n => [...box.querySelectorAll(heads)].find(h => nOf(h) === n);
  if (kept[name] && !box.querySelector("[data-nbdata-arrow]")) sort(at(kept[name].n), kept[name].down);
  if (name && kept.focus?.name === name && d.activeElement === d.body) at(kept.focus.n).focus({preventScroll: true});
});
if (!isFirst) return;
const head = e => e.target.closest?.(heads);
d.addEventListener("pointerdown", () => { kept.focus = null; });
d.addEventListener("focusin", e => {
  const h = head(e); kept.focus = h && {name: boxOf(h).dataset.nbdata, n: nOf(h)}; });
d.addEventListener("click", e => { const h = head(e); if (h) sort(h); });
d.addEventListener("keydown", e => {
  const h = head(e); if (h && (e.key === "Enter" || e.key === " ")) { e.preventDefault(); sort(h); } });
})(document);</script>"""


def sort_key(text: str) -> float | None:
    """Return the number that a cell shows: a count, a size, a share or a duration; None for any other text.

    Rows that show the same keep their order, so no cell needs more digits than it shows.
    """
    if text in ("", "–"):
        return UNKNOWN
    if found := _NUMBER.fullmatch(text):
        return float(found[1].replace(",", "")) * _UNITS.get(found[2] or "B", 1.0)
    if text == "<0.1 s":
        return 0.0
    if _DURATION.fullmatch(text):
        parts = re.findall(r"([\d.]+) (h|min|s)", text)
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    return None


def keys_attribute(keys: Sequence[str | float | None]) -> str:
    """Return the attribute of a row with the keys of its columns; None stands for the text of the cell."""
    return f'data-nbdata-k="{escape(json.dumps(keys), quote=True)}"'
