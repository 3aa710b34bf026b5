"""What the index page of a folder links to: the files and folders below it."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

__all__ = ["links_below"]


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
            there = urlsplit(urljoin(url, link.strip()))
            same = (there.scheme, there.hostname, there.port) == (base.scheme, base.hostname, base.port)
        except ValueError:
            continue
        if not same or there.query or not unquote(there.path).startswith(unquote(top)):
            continue
        depth = top.count("/")
        parts = [unquote(part, errors="surrogateescape") for part in there.path.split("/")[depth:]]
        names = parts[:-1] if parts[-1] == "" else parts
        # An escaped slash would be part of a name, and such a name no key can say.
        if names and all(
            name not in ("", ".", "..") and "/" not in name and "\0" not in name for name in names
        ):
            found.add("/".join(parts))
    return {name for name in found if not _linked_above(name, found)}


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
