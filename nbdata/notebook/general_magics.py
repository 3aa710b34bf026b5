"""``%nbdata VERB …``, and ``%ls`` for URLs: the magics that are not simply named after a verb.

IPython has its own ``%ls``, which lists folders of the disk as the shell does and also works without the percent sign.
Many notebooks use it, so it must keep working, and ``ls s3://…`` should work too. So nbdata handles a ``%ls`` command
that names a URL, and IPython handles every other one. Unloading the extension restores IPython's ``%ls``. ``%nbdata ls
data`` uses nbdata for a folder of the disk as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.magic import no_var_expand

from nbdata.errors import BadOption
from nbdata.notebook.variables import words_of
from nbdata.paths import canonical, is_url
from nbdata.suggestions import suggest_verb
from nbdata.verbs import VERBS

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["NAME", "beside_ipython", "by_name", "give_back_alias", "keep_alias"]

#: The magic whose first word is the verb.
NAME = "nbdata"

_Magic = Callable[[str], Any]
# What `keep_alias` has taken from IPython's aliases.
_taken: list[tuple[str, str]] = []


def by_name(magics: dict[str, _Magic], refused: Callable[[BadOption], Exception]) -> _Magic:
    """Create ``%nbdata VERB …``.

    Parameters
    ----------
    magics : dict
        The magic of each verb.
    refused : callable
        Converts an error into one that can be shown.
    """

    @no_var_expand
    def nbdata(line: str) -> Any:
        verb, rest = [*line.split(None, 1), "", ""][:2]
        magic = magics.get(verb.replace("-", "_"))
        if magic is None:
            what = f"there is no verb {verb!r}" if verb else "%nbdata: VERB is missing"
            raise refused(BadOption(what, remedy=suggest_verb(verb, [*VERBS]))) from None
        return magic(rest)

    nbdata.__doc__ = "Run a verb of nbdata: %nbdata VERB … is %VERB …\n\n" + "\n".join(
        f"%nbdata {verb:14}{cls.summary}" for verb, cls in VERBS.items()
    )
    return nbdata


def beside_ipython(shell: InteractiveShell, ours: _Magic, before: _Magic | None) -> _Magic:
    """Create ``%ls``: runs `ours` for a command with a URL, otherwise the earlier magic `before`."""
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


def keep_alias(shell: InteractiveShell, name: str) -> None:
    """Have IPython not define its alias of this name anew, as at its end and for %reset: our magic has the name."""
    aliases = shell.alias_manager
    if aliases is not None and not _taken:
        _taken.extend(one for one in aliases.default_aliases if one[0] == name)
        aliases.default_aliases = [one for one in aliases.default_aliases if one[0] != name]


def give_back_alias(shell: InteractiveShell) -> None:
    """Undo `keep_alias`."""
    if (aliases := shell.alias_manager) is not None:
        aliases.default_aliases = [*aliases.default_aliases, *_taken]
    _taken.clear()


def _names_url(line: str, shell: InteractiveShell) -> bool:
    try:
        return any(is_url(canonical(word)) for word in words_of(line, shell.user_ns, prog="%ls") if word)
    except BadOption:  # the magic that gets the command reports the error
        return "://" in line


def _expanded(_nbdata_shell: InteractiveShell, _nbdata_line: str) -> str:
    """Return the command with IPython's expansion of variables; parameter names must not hide the user's."""
    return str(_nbdata_shell.var_expand(_nbdata_line))  # type: ignore[no-untyped-call]
