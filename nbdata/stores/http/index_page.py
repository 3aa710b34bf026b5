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
    folder = _Folder(urlsplit(url))
    names = set[str]()
    for link in finder.links:
        try:
            written = folder.parts_below(urlsplit(link.strip(_BLANK)))
        except ValueError:
            continue
        parts = [unquote(part, errors="surrogateescape") for part in written]
        if not any(parts):  # the folder itself, or not below it
            continue
        # An escaped slash or NUL would be part of a name, but no key can have such a name. Kept escaped, the name
        # leads nowhere, and the file is counted as unreadable.
        names.add("/".join(written if any("/" in part or "\0" in part for part in parts) else parts))
    return _without_linked_above(names)


class _Folder:
    """The folder of a page. Its path is taken apart once: a server may redirect to a long one."""

    def __init__(self, page: SplitResult) -> None:
        self._page = page
        above = page.path[: page.path.rfind("/") + 1]
        self._plain = unquote(above)
        self._above = [unquote(part) for part in above.split("/")[:-1]]

    def parts_below(self, link: SplitResult) -> list[str]:
        """Return the parts of a link's path below this folder, as the page has them; empty if it leads elsewhere.

        `urllib.parse.urljoin` does not fit: it takes ``x;`` for ``x`` with an empty parameter.
        """
        path = link.path
        if link.query or (link.scheme and link.scheme != self._page.scheme):
            return []
        if link.netloc:
            if (link.hostname, link.port) != (self._page.hostname, self._page.port):
                return []
            path = path or "/"
        elif path.startswith("//"):  # browsers take the next part for a host
            return []
        if path.startswith("/"):
            _, kept = _without_dots(path[1:])
            whole = "/" + "/".join(kept)
            return whole.split("/")[len(self._above) :] if unquote(whole).startswith(self._plain) else []
        up, kept = _without_dots(path)
        up = min(up, len(self._above) - 1)
        back = up == 0 or [unquote(part) for part in kept[:up]] == self._above[-up:]
        return kept[up:] if back else []


def _without_dots(path: str) -> tuple[int, list[str]]:
    """Resolve ``.`` and ``..`` in a relative path, also if they are escaped, as browsers do.

    Returns how many folders up it leads, and its parts from there.
    """
    up, kept = 0, list[str]()
    parts = path.split("/")
    for number, part in enumerate(parts):
        plain = part.lower().replace("%2e", ".")
        if plain not in (".", ".."):
            kept.append(part)
            continue
        if plain == "..":
            up += not kept
            del kept[-1:]
        if number == len(parts) - 1:
            kept.append("")
    return up, kept


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
