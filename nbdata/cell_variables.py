"""What a magic takes for a variable in its line: ``$name``, and braces that are no brace pattern.

`nbdata.notebook.variables` puts values in their places. A line that is made from the name of an object must have none:
in a cell it would read the user's variables, and send them to the store.
"""

from __future__ import annotations

import re
import shlex

from nbdata.paths import is_brace_pattern

__all__ = ["BRACES", "has_variable"]

#: Braces and what is in them. In a glob, ``[{]`` is a brace itself.
BRACES = re.compile(r"\$?\{(?!\])([^{}]*)\}")
_NAME = re.compile(r"\$\w")


def has_variable(line: str) -> bool:
    """Return whether a magic would take any of this line for a variable, or could not split it."""
    try:
        words = shlex.split(line)  # names count behind quotes, too
    except ValueError:
        return True
    return any(map(_NAME.search, words)) or any(map(_is_taken, BRACES.finditer(line)))


def _is_taken(match: re.Match[str]) -> bool:
    inner = match[1]
    # A constant key may hold a comma: {settings["a,b"]}.
    return bool(inner) and ("[" in inner or not is_brace_pattern(f"{{{inner}}}"))
