"""Line magics, one for each verb, generated from the verb's declaration; ``%verb?`` shows its manual."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.magic import no_var_expand

from nbdata.errors import BadOption, Cancelled, NbdataError, NotFound, TransferFailed
from nbdata.interrupts import unanswered
from nbdata.notebook import tab
from nbdata.notebook.cell_loop import ITEM, run_body
from nbdata.notebook.general_magics import NAME, LsBesideIPython, by_name, replacing
from nbdata.notebook.panels import shown
from nbdata.notebook.shift_magic import NAME as SHIFT
from nbdata.notebook.shift_magic import shift_magic
from nbdata.notebook.variables import meant_variable, words_and_written
from nbdata.operation import Operation
from nbdata.option import Option
from nbdata.report import Report
from nbdata.verbs import VERBS
from nbdata.verbs.cache_stream import CacheStream
from nbdata.verbs.listing import Ls
from nbdata.verbs.mount import Mount, Unmount
from nbdata.verbs.parsing import help_text, parse, written_secrets

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["register", "unregister"]


# Of each shell with nbdata, what keeps its ``%ls``.
_ls: weakref.WeakKeyDictionary[InteractiveShell, LsBesideIPython] = weakref.WeakKeyDictionary()


def _extra(cls: type[Operation]) -> dict[str, Option]:
    """Return the option that magics add to a verb."""
    what = "stream" if cls.bound else "Report (with -b the Job)"
    failing = (
        "" if cls.bound else " A Report is stored even if it has failures and the cell ends with an error."
    )
    text = f"Also store the {what} in the variable NAME.{failing}"
    return {"output": Option(text, short="o", metavar="NAME")}


def register(shell: InteractiveShell) -> None:
    """Register ``%pull``, ``%push`` … in a shell."""
    unregister(shell)
    known = shell.magics_manager.magics
    magics = {cls.verb: _magic(cls, shell) for cls in VERBS.values()}
    ls = _ls[shell] = LsBesideIPython(shell, magics[Ls.verb])
    more = {**magics, SHIFT: shift_magic(shell, _in_one_line)}
    own = {**more, Ls.verb: ls.over(known["line"].get(Ls.verb)), NAME: by_name(more, _in_one_line)}
    for name, magic in own.items():
        shell.register_magic_function(replacing(magic, known["line"].get(name)), "line", name)  # type: ignore[arg-type]
    loop = replacing(_loop(shell), known["cell"].get(CacheStream.verb))
    shell.register_magic_function(loop, "cell", CacheStream.verb)  # type: ignore[arg-type]
    shell.events.register("pre_execute", ls.keep)
    tab.register(shell, _extra)


def unregister(shell: InteractiveShell) -> None:
    """Remove them from the shell, and restore what had their names; a name that is no longer ours stays as it is."""
    if (ls := _ls.pop(shell, None)) is not None:
        shell.events.unregister("pre_execute", ls.keep)
    for kind, names in (("line", (*VERBS, SHIFT, NAME)), ("cell", (CacheStream.verb,))):
        known = shell.magics_manager.magics[kind]
        for name in names:
            if hasattr(known.get(name), "ipython_has"):
                before = known.pop(name).ipython_has
                if before is not None:
                    known[name] = before
    tab.unregister(shell)


def _magic(cls: type[Operation], shell: InteractiveShell) -> Callable[[str], Any]:
    prog = f"%{cls.verb}"

    @no_var_expand
    def magic(line: str) -> Any:
        try:
            return _run(cls, prog, line, shell)
        except KeyboardInterrupt as interrupt:
            again = str(interrupt)[:1].upper() + str(interrupt)[1:] or cls.stopped
            raise _in_one_line(Cancelled(f"{cls.verb} was interrupted", remedy=again)) from None
        except NbdataError as error:
            raise _in_one_line(error) from None

    magic.__name__ = magic.__qualname__ = cls.verb
    magic.__doc__ = help_text(cls, prog, _extra(cls))
    return magic


def _loop(shell: InteractiveShell) -> Callable[[str, str], None]:
    prog = f"%%{CacheStream.verb}"

    @no_var_expand
    def loop(line: str, cell: str) -> None:
        __tracebackhide__ = True  # tracebacks show only the body

        def items() -> Any:
            return _run(CacheStream, prog, line, shell)

        try:
            run_body(shell, items, cell)
        except NbdataError as error:
            raise _in_one_line(error) from None

    loop.__name__ = loop.__qualname__ = CacheStream.verb
    loop.__doc__ = (
        f"Run the cell's body once per item, like the body of a `for` loop over `{ITEM}`.\n\n"
        + help_text(CacheStream, prog, _extra(CacheStream))
    )
    return loop


def _run(cls: type[Operation], prog: str, line: str, shell: InteractiveShell) -> Any:
    words, saved = words_and_written(line, shell.user_ns, prog=prog)
    for option in written_secrets(saved):
        sys.stderr.write(
            f"{option}=… is saved with this cell; {option}=env:NAME takes it from the environment\n"
        )
    try:
        operation, face = parse(cls, words, prog=prog, extra=_extra(cls))
    except BadOption as error:
        error.remedy = _more_than_a_command(words) or error.remedy
        raise
    if operation is None:
        print(help_text(cls, prog, _extra(cls)))  # noqa: T201  what was asked for
        return None
    quiet, name = bool(face["quiet"]), face.get("output")
    if name and not name.isidentifier():
        raise BadOption(
            f"{prog}: -o {name!r} is not a name", expected="the name of a variable", remedy="Write -o report"
        )
    try:
        if face.get("dry_run"):
            result: Any = operation.plan()
        elif face.get("background"):
            result = operation.start()
        else:
            try:
                result = operation.run(quiet=quiet)
            except KeyboardInterrupt as pressed:
                if quiet or unanswered(pressed):
                    raise
                # The display has said what is kept, and what to do.
                raise Cancelled(
                    f"{cls.verb} was interrupted", remedy="See above what is kept and how to go on"
                ) from None
            if isinstance(result, Report) and cls not in (Mount, Unmount):
                shown(result)  # its display has just shown it; as the cell's value it would appear twice
            elif cls is CacheStream and not name:
                result.unnamed = partial(_has_no_name, shell)
    except NotFound as error:
        error.remedy = meant_variable(words, error.path or "", shell.user_ns) or error.remedy
        raise
    except TransferFailed as error:
        if name and isinstance(error.report, Report):
            shell.user_ns[name] = error.report
        raise
    if name:
        shell.user_ns[name] = result
    return result


def _has_no_name(shell: InteractiveShell, value: object) -> bool:
    """Whether no variable of the user has a value; those of IPython, such as ``_``, do not count."""
    return not any(one is value for name, one in shell.user_ns.items() if not name.startswith("_"))


def _more_than_a_command(words: Sequence[str]) -> str:
    """Return the remedy for a comment or code behind a command; empty if there is none."""
    if any(word.startswith("#") for word in words):
        return "A magic takes the whole line: write the comment on a line of its own"
    if any(word.endswith(";") for word in words):
        return "A magic takes the whole line: write what follows the ; on a line of its own"
    return ""


def _in_one_line(error: NbdataError) -> NbdataError:
    """Let IPython show the error as a line or a few: users need the remedy, not the place where it was raised.

    If there are several failures, the report above the error lists them.
    """
    said = "\n".join(error.lines)
    if (
        isinstance(error, TransferFailed)
        and isinstance(error.report, Report)
        and len(error.report.failures) > 1
    ):
        said = ". ".join(filter(None, [error.details.get("what"), error.remedy])) or said
    text = f"{type(error).__name__}: {said}"
    error._render_traceback_ = lambda: [text]  # type: ignore[attr-defined]  # IPython's protocol
    return error
