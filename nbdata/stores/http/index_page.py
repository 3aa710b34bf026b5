"""Read the links of a folder's index page: the files and folders below it."""

from __future__ import annotations

import contextlib
import re
from html.parser import HTMLParser
from urllib.parse import SplitResult, unquote, urlsplit

__all__ = ["LONGEST", "links_below"]

#: The most characters of a link that a request can ask for. A longer one is listed, but not followed.
LONGEST = 16 << 10

# Characters that browsers strip from both ends of a link.
_BLANK = "".join(map(chr, range(33)))


# What the index page of an empty folder has: a title, or a link to the folder above.
_INDEX = re.compile(
    r"(?i)<(?:title|h1)[^>]{0,200}>\s{0,20}(?:index of|directory listing|listing|folder|contents of)"
    r"|<a\s[^>]{0,200}href\s{0,9}=\s{0,9}[\"']?\.\./?[\"'>\s]|>\s{0,20}(?:\[?parent directory|\.\./?\s{0,9}<)"
)


def says_index(page: str) -> bool:
    """Return whether a page without links below its folder looks like the index page of an empty one."""
    return _INDEX.search(page) is not None


def links_below(page: str, url: str) -> set[str]:
    """Return the relative, unescaped names that a page links to below its own folder. Folders end in a slash.

    Links with a query are skipped, because they sort the page. A link to a deeper file is kept, unless the page also
    links to a folder above that file. That folder's own page then lists it.

    Parameters
    ----------
    url : str
        The URL of the page, to which links are relative. Its path up to the last slash is the folder.
    """
    finder = _Links()
    # It raises AssertionError for marked sections that make no sense, and ValueError for a character reference of
    # thousands of digits; the links before them count.
    with contextlib.suppress(AssertionError, ValueError):
        finder.feed(page)
    base = urlsplit(url)
    top = base.path[: base.path.rfind("/") + 1]
    names = set[str]()
    for link in finder.links:
        try:
            there = urlsplit(link.strip(_BLANK))
            path = _path(there, base, top)
        except ValueError:
            continue
        if path is None or there.query or not unquote(path).startswith(unquote(top)):
            continue
        written = path.split("/")[top.count("/") :]
        parts = [unquote(part, errors="surrogateescape") for part in written]
        if not any(parts):  # the folder itself
            continue
        # An escaped slash or NUL would be part of a name, but no key can have such a name. Kept escaped, the name
        # leads nowhere, and the file is counted as unreadable.
        names.add("/".join(written if any("/" in part or "\0" in part for part in parts) else parts))
    return _without_linked_above(names)


def _path(link: SplitResult, base: SplitResult, top: str) -> str | None:
    """Return the path that a link leads to on the same server; None if it leads elsewhere.

    `urllib.parse.urljoin` does not fit: it takes ``x;`` for ``x`` with an empty parameter. The path stays as the page
    has it, except for dots.
    """
    if link.scheme and link.scheme != base.scheme:
        return None
    if link.netloc:
        same = (link.hostname, link.port) == (base.hostname, base.port)
        return _without_dots(link.path or "/") if same else None
    if link.path.startswith("//"):  # browsers take the next part for a host
        return None
    return _without_dots(link.path if link.path.startswith("/") else top + link.path)


def _without_dots(path: str) -> str:
    """Resolve ``.`` and ``..`` in a path, also if they are escaped, as browsers do."""
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


def _without_linked_above(names: set[str]) -> set[str]:
    """Return the names without those that lie below a folder that is among them, or are one without its slash."""
    kept, above = set[str](), None
    for name in sorted(names):  # what lies below a folder comes right behind it
        if len(name) > LONGEST:
            kept.add(name)
        elif above is not None and name.startswith(above):
            continue
        elif name.endswith("/"):
            kept.add(name)
            above = name
        elif f"{name}/" not in names:
            kept.add(name)
    return kept


class _Links(HTMLParser):
    """Collects the targets of all links, in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]
