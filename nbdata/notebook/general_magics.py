"""``%nbdata VERB …``, and ``%ls`` for URLs: the magics that are not simply named after a verb.

IPython has its own ``%ls``, an alias, which lists folders of the disk as the shell does and also works without the
percent sign. Many notebooks use it, so it must keep working, and ``ls s3://…`` should work too. So nbdata handles a
``%ls`` command that names a URL, and IPython handles every other one. To IPython, ``%ls`` remains an alias: ``%alias``
lists and changes it, and Tab offers files. ``%nbdata ls data`` uses nbdata for a folder of the disk as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from IPython.core.alias import Alias
from IPython.core.magic import no_var_expand

from nbdata.errors import BadOption
from nbdata.notebook.variables import words_of
from nbdata.paths import canonical, is_url
from nbdata.suggestions import suggest_verb
from nbdata.verbs import GROUPS, VERBS
from nbdata.verbs.listing import Ls

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["NAME", "LsBesideIPython", "by_name", "names_url", "replacing"]

#: The magic whose first word is the verb.
NAME = "nbdata"

_Magic = Callable[[str], Any]
_AnyMagic = TypeVar("_AnyMagic", bound=Callable[..., Any])


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

    nbdata.__doc__ = _overview()
    return nbdata


def _overview() -> str:
    """Return what ``%nbdata?`` shows: the verbs in groups, each with an example."""
    lines = ["Run a verb of nbdata: %nbdata VERB … is %VERB …, and %VERB? explains it."]
    for title, verbs in GROUPS.items():
        lines += ["", title]
        for cls in verbs:
            # %ls alone is IPython's own.
            name, example = (f"%{NAME} " if cls is Ls else "%"), cls.examples[0]
            lines += [f"  {name + cls.verb:16}{cls.summary}", f"  {'':16}  {name}{example}"]
    lines += [
        "",
        "Files",
        f"  {'%shift':16}Have open, os, glob, shutil and pathlib take URLs.",
        f"  {'':16}  %shift on",
    ]
    return "\n".join(lines)


class LsBesideIPython:
    """Creates ``%ls``: nbdata's for a command with a URL, otherwise the magic or alias that has the name already.

    Parameters
    ----------
    shell : InteractiveShell
        The shell.
    ours : callable
        nbdata's magic.
    """

    def __init__(self, shell: InteractiveShell, ours: _Magic) -> None:
        self._shell = shell
        self._ours = ours

    def over(self, before: _Magic | None) -> _Magic:
        """Return the magic that takes the place of an earlier one."""
        if before is None:
            return self._ours
        if isinstance(before, Alias):
            made: _Magic = _AliasBesideUrls(self._shell, before, self._run)
        else:

            @no_var_expand
            def ls(line: str) -> Any:
                return self._run(before, line)

            made = ls
        made.__doc__ = (
            f"List a folder of the disk, as IPython's own %ls; with a URL: {self._ours.__doc__}\n"
            "%nbdata ls PLACE is this for a folder of the disk, too."
        )
        return made

    def keep(self) -> None:
        """Take the place of IPython's alias again if it was defined anew, as by ``%reset`` and ``%alias``."""
        known = self._shell.magics_manager.magics["line"]
        if isinstance(alias := known.get(Ls.verb), Alias) and not isinstance(alias, _AliasBesideUrls):
            known[Ls.verb] = replacing(self.over(alias), alias)

    def _run(self, before: _Magic, line: str) -> Any:
        if names_url(line, self._shell):
            return self._ours(line)
        expands = not getattr(before, "_ipython_magic_no_var_expand", False)
        return before(_expanded(self._shell, line) if expands else line)


class _AliasBesideUrls(Alias):
    """An alias of IPython that leaves commands with a URL to nbdata."""

    _ipython_magic_no_var_expand = True

    def __init__(self, shell: InteractiveShell, alias: Alias, run: Callable[[_Magic, str], Any]) -> None:
        super().__init__(shell, alias.name, alias.cmd)  # type: ignore[no-untyped-call]
        self._alias = alias
        self._run = run

    def __repr__(self) -> str:
        """Return what ``%ls?`` shows; IPython shows no docstring of an alias."""
        return f"<alias {self.name} for {self.cmd!r}; nbdata's for a URL, see %nbdata {self.name} --help>"

    def __call__(self, rest: str = "") -> Any:
        return self._run(self._alias, rest)


def replacing(magic: _AnyMagic, before: object) -> _AnyMagic:
    """Note on a magic of nbdata what had its name before; unloading gives the name back."""
    magic.ipython_has = getattr(before, "ipython_has", before)  # type: ignore[attr-defined]
    return magic


def names_url(line: str, shell: InteractiveShell) -> bool:
    """True if a word of a ``%ls`` command is a URL, after its variables are expanded."""
    try:
        return any(is_url(canonical(word)) for word in words_of(line, shell.user_ns, prog="%ls") if word)
    except BadOption:  # the magic that gets the command reports the error
        return "://" in line


def _expanded(_nbdata_shell: InteractiveShell, _nbdata_line: str) -> str:
    """Return the command with IPython's expansion of variables; parameter names must not hide the user's."""
    return str(_nbdata_shell.var_expand(_nbdata_line))  # type: ignore[no-untyped-call]
