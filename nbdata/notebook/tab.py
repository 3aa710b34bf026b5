"""Tab completion in a cell: options and places for nbdata's magics."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from nbdata.notebook.general_magics import NAME, names_url
from nbdata.operation import Operation
from nbdata.option import Option
from nbdata.verbs import VERBS
from nbdata.verbs.cache_stream import CacheStream
from nbdata.verbs.completion import described, in_quotes, split_line
from nbdata.verbs.listing import Ls

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["register", "unregister"]

# JupyterLab shows descriptions in lines of one height, and would break them at blanks and hyphens.
_UNBROKEN = {ord(" "): "\N{NO-BREAK SPACE}", ord("-"): "\N{NON-BREAKING HYPHEN}"}
# Most characters of a description.
_TOLD = 50

# ``%pull …`` and ``%nbdata pull …``, also after ``name =``; of cell magics there is one.
_LINE = re.compile(
    rf"(\s*(?:\w+\s*=\s*)?%(?:{NAME}\s+)?|%%(?={CacheStream.verb}\s))({'|'.join(VERBS)})\s(.*)", re.DOTALL
)


def register(shell: InteractiveShell, extra: Callable[[type[Operation]], Mapping[str, Option]]) -> None:
    """Offer completions in a shell, instead of those from Python's own completers."""

    @context_matcher(identifier="nbdata")  # type: ignore[untyped-decorator]
    def complete(context: CompletionContext) -> SimpleMatcherResult:
        found = _LINE.fullmatch(context.text_until_cursor)
        if found is None or _is_ipythons(found, shell):
            # Nothing else: IPython adds the defaults of absent keys only, and None as a fragment fails.
            return {"completions": []}  # type: ignore[typeddict-item]  # mypy misreads NotRequired
        _, verb, line = found.groups()
        cls = VERBS[verb]
        words, current = split_line(line)
        offered = described(cls, words, current, extra=extra(cls))
        # Behind quotes or backslashes, the completion replaces only the last name.
        typed = current if line.endswith(current) else re.split(r"[\s/\\'\"]", line)[-1]
        quoted = in_quotes(line)
        added = {text[len(current) :]: told for text, told in offered.items()}
        return _result(
            {typed + (more if quoted else _escaped(more)): told for more, told in added.items()}, typed
        )

    unregister(shell)
    shell.Completer.custom_matchers.append(complete)


def unregister(shell: InteractiveShell) -> None:
    """Stop offering completions."""
    matchers = shell.Completer.custom_matchers
    matchers[:] = [one for one in matchers if getattr(one, "matcher_identifier", "") != "nbdata"]


def _is_ipythons(found: re.Match[str], shell: InteractiveShell) -> bool:
    """True for ``%ls`` of a folder, which IPython handles; an option can still become nbdata's, by a URL after it."""
    before, verb, line = found.groups()
    if verb != Ls.verb or NAME in before or names_url(line, shell):
        return False
    magic = shell.magics_manager.magics["line"].get(verb)
    return getattr(magic, "ipython_has", None) is not None and not split_line(line)[1].startswith("-")


def _escaped(text: str) -> str:
    """Return a text as a command needs it outside quotes, so that it stays one word."""
    return re.sub(r"([\s'\"\\])", r"\\\1", text)


def _result(offered: dict[str, str], fragment: str) -> SimpleMatcherResult:
    """Return completions with their descriptions, which front ends show beside them, as they do types of variables."""
    return {
        "completions": [
            SimpleCompletion(text, type=told.translate(_UNBROKEN)[:_TOLD] or None)
            for text, told in offered.items()
        ],
        "matched_fragment": fragment,
        "suppress": True,
        "do_not_suppress": set(),
        "ordered": True,
    }
