"""``%nbdata VERB …``, and ``%ls`` for URLs: the magics that are not just named like a verb.

IPython has a ``%ls`` of its own, which lists folders of the disk as the shell does, and which works without the percent
sign; notebooks everywhere use it. To take it away would be rude, and so would be an ``ls s3://…`` that fails. So
``%ls`` is nbdata's for a line that names a URL, and IPython's for every other line; when the extension is unloaded,
IPython's stands there as before. ``%nbdata ls data`` is nbdata's for a folder of the disk, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.magic import no_var_expand

from nbdata.errors import BadOption
from nbdata.notebook.variables import words_of
from nbdata.option import suggest
from nbdata.paths import canonical, is_url
from nbdata.verbs import VERBS

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["NAME", "beside_ipython", "by_name"]

#: The magic that takes the verb as its first word.
NAME = "nbdata"

_Magic = Callable[[str], Any]


def by_name(magics: dict[str, _Magic], refused: Callable[[BadOption], Exception]) -> _Magic:
    """``%nbdata VERB …``.

    Parameters
    ----------
    magics : dict
        The magic of each verb.
    refused : callable
        Makes an error ready to be shown.
    """

    @no_var_expand
    def nbdata(line: str) -> Any:
        verb, _, rest = line.strip().partition(" ")
        magic = magics.get(verb.replace("-", "_"))
        if magic is None:
            what = f"there is no verb {verb!r}" if verb else "%nbdata: VERB is missing"
            raise refused(BadOption(what, remedy=suggest(verb, [*VERBS]))) from None
        return magic(rest)

    nbdata.__doc__ = "Run a verb of nbdata: %nbdata VERB … is %VERB …\n\n" + "\n".join(
        f"%nbdata {verb:14}{cls.summary}" for verb, cls in VERBS.items()
    )
    return nbdata


def beside_ipython(shell: InteractiveShell, ours: _Magic, before: _Magic | None) -> _Magic:
    """``%ls``: `ours` for a line with a URL, else what stood there `before`."""
    if before is None:
        return ours

    @no_var_expand
    def ls(line: str) -> Any:
        if _names_url(line, shell):
            return ours(line)
        assert before is not None
        expands = not getattr(before, "_ipython_magic_no_var_expand", False)
        return before(_expanded(shell, line) if expands else line)

    ls.__doc__ = (
        f"List a folder of the disk, as IPython's own %ls; with a URL: {ours.__doc__}\n"
        "%nbdata ls PLACE is this for a folder of the disk, too."
    )
    ls.ipython_has = before  # type: ignore[attr-defined]  # what stands there again after unloading
    return ls


def _names_url(line: str, shell: InteractiveShell) -> bool:
    try:
        return any(is_url(canonical(word)) for word in words_of(line, shell.user_ns, prog="%ls") if word)
    except BadOption:  # what is wrong is told by the magic whose line it is
        return "://" in line


def _expanded(_nbdata_shell: InteractiveShell, _nbdata_line: str) -> str:
    """The line with the user's variables, as IPython writes them; its names would hide variables of the user."""
    return str(_nbdata_shell.var_expand(_nbdata_line))  # type: ignore[no-untyped-call]
