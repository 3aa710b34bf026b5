"""Completion with Tab in bash and zsh: ``eval "$(nbdata completion bash)"``.

The shell calls ``nbdata completion words`` at each Tab, with the command line in COMP_LINE and the cursor in
COMP_POINT.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence

from nbdata.errors import BadOption
from nbdata.operation import Operation
from nbdata.option import Option
from nbdata.verbs import VERBS
from nbdata.verbs.completion import completions, in_quotes, split_line
from nbdata.verbs.transfers import Transfers

__all__ = ["answer"]

_BASH = """_nbdata() {
    local IFS=$'\\n'
    COMPREPLY=($(COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" nbdata completion words 2>/dev/null))
    # What readline takes for names of files it quotes itself, as the line needs it.
    (( COMP_CWORD > 1 )) && compopt -o filenames
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/=] ]] && compopt -o nospace
    return 0
}
complete -F _nbdata nbdata"""
_ZSH = f"autoload -Uz bashcompinit && bashcompinit\n{_BASH}"
_SHELLS = {"bash": _BASH, "zsh": _ZSH}
# Most ids of jobs that are offered: a shell does not show what they are.
_JOBS = 8
_AGENT = ("status", "stop", "log")
_HELP = """usage: nbdata completion bash|zsh

Prints a script for Tab completion of verbs, options, local paths and places in a store. This command turns it on until
the shell ends. For every new shell, add it to the start file:

  eval "$(nbdata completion bash)"    # ~/.bashrc
  eval "$(nbdata completion zsh)"     # ~/.zshrc"""


def answer(
    words: Sequence[str], extra: Callable[[type[Operation]], Mapping[str, Option]], more: Sequence[str]
) -> str:
    """Return a shell's code, the possible completions of the typed word (one per line), or the help.

    Parameters
    ----------
    extra : callable
        The options that the command line adds to a verb.
    more : sequence of str
        The commands of the command line beside the verbs.
    """
    asked = words[0] if len(words) == 1 else ""
    if asked == "words":
        return "\n".join(_offered(extra, more))
    if asked in ("-h", "--help"):
        return _HELP
    if asked not in _SHELLS:
        raise BadOption("nbdata completion: name the shell", expected=" or ".join(_SHELLS))
    return _SHELLS[asked]


def _offered(extra: Callable[[type[Operation]], Mapping[str, Option]], more: Sequence[str]) -> list[str]:
    line = os.environ.get("COMP_LINE", "")
    typed = line.encode()[: int(os.environ.get("COMP_POINT") or len(line.encode()))].decode(errors="ignore")
    words, current = split_line(typed)
    if len(words) < 2:
        return [name for name in (*VERBS, *more) if name.startswith(current)]
    cls = VERBS.get(words[1].replace("-", "_"))
    if cls is None:
        return [
            name for name in _AGENT if words[1] == "agent" and len(words) == 2 and name.startswith(current)
        ]
    # Both shells split words at these characters outside quotes, and replace only the text after the last one.
    kept = 0 if in_quotes(typed) else max((match.end() for match in re.finditer("[:=]", current)), default=0)
    found = [text[kept:] for text in completions(cls, words[2:], current, extra=extra(cls))]
    return found[:_JOBS] if cls is Transfers and not current.startswith("-") else found
