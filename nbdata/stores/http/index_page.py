"""What the index page of a folder links to: the files and folders below it."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import SplitResult, unquote, urlsplit

__all__ = ["links_below"]

# What browsers take away at both ends of a link.
_BLANK = "".join(map(chr, range(33)))


def links_below(page: str, url: str) -> set[str]:
    """Relative names, without escapes, of what a page links to below its own folder; folders end in a slash.

    Links with a query are not taken: they sort the page. A link to what lies deeper is taken as its file, unless the
    folder above it is linked too, whose own page then says what it has.

    Parameters
    ----------
    url : str
        That of the page, to which links are relative; up to the last slash of its path it names the folder.
    """
    finder = _Links()
    finder.feed(page)
    base = urlsplit(url)
    top = base.path[: base.path.rfind("/") + 1]
    found = set[str]()
    for link in finder.links:
        try:
            there = urlsplit(link.strip(_BLANK))
            path = _path(there, base, top)
        except ValueError:
            continue
        if path is None or there.query or not unquote(path).startswith(unquote(top)):
            continue
        said = path.split("/")[top.count("/") :]
        parts = [unquote(part, errors="surrogateescape") for part in said]
        if not any(parts):  # the folder itself
            continue
        # An escaped slash or NUL would be part of a name, and such a name no key can say. As it is escaped it leads
        # nowhere, so it is counted as what cannot be read.
        found.add("/".join(said if any("/" in part or "\0" in part for part in parts) else parts))
    return {name for name in found if not _linked_above(name, found)}


def _path(link: SplitResult, base: SplitResult, top: str) -> str | None:
    """The path that a link leads to on the same server; None if it leads elsewhere.

    Not by `urllib.parse.urljoin`, which takes ``x;`` for ``x`` with an empty parameter: the path is no other than the
    page has it, but for dots.
    """
    if link.scheme and link.scheme != base.scheme:
        return None
    if link.netloc:
        same = (link.hostname, link.port) == (base.hostname, base.port)
        return _without_dots(link.path or "/") if same else None
    if link.path.startswith("//"):  # browsers take what follows for a host
        return None
    return _without_dots(link.path if link.path.startswith("/") else top + link.path)


def _without_dots(path: str) -> str:
    """A path without the parts that say *here* and *above*, also those that are escaped, as browsers read them."""
    kept: list[str] = []
    parts = path.split("/")
    for number, part in enumerate(parts):
        plain = part.lower().replace("%2e", ".")
        if plain == ".." and len(kept) > 1:
            kept.pop()
        if plain not in (".", ".."):
            kept.append(part)
        elif number == len(parts) - 1:
            kept.append("")
    return "/".join(kept)


def _linked_above(name: str, found: set[str]) -> bool:
    at = name.find("/")
    while 0 <= at < len(name) - 1:
        if name[: at + 1] in found:
            return True
        at = name.find("/", at + 1)
    return name + "/" in found


class _Links(HTMLParser):
    """The targets of all links, in their order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]
