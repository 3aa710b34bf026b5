"""``%%cache_stream``: runs the cell's body once for each item, like the body of a ``for`` loop."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from nbdata.errors import BadOption

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["run_body"]

#: The name of the loop variable in the body.
ITEM = "item"
_ITEMS = "_nbdata_items"


def run_body(shell: InteractiveShell, items: Callable[[], Iterable[Any]], body: str) -> None:
    """Run `body` in the user's namespace for each of the items, bound to ``item``.

    ``break`` and ``continue`` work as in a loop, magics work, and a traceback shows the body's own lines. The stream is
    requested only after the body has been parsed as Python.

    Raises
    ------
    BadOption
        If the body is empty.
    SyntaxError
        If it is not valid Python.
    """
    __tracebackhide__ = True  # tracebacks show only the body
    source: str = shell.transform_cell(body)  # type: ignore[no-untyped-call]
    # Named like a cell, so that tracebacks find its lines.
    name = shell.compile.cache(source, shell.execution_count, raw_code=body)
    parsed = ast.parse(source, name)
    if not parsed.body:
        raise BadOption(
            "%%cache_stream: the cell has no body",
            expected=f"code for each `{ITEM}` below the first line",
        )
    loop = ast.For(
        target=ast.Name(ITEM, ast.Store()),
        iter=ast.Name(_ITEMS, ast.Load()),
        body=parsed.body,
        orelse=[],
        lineno=1,
    )
    module = ast.fix_missing_locations(ast.Module([loop], type_ignores=[]))
    code = compile(module, name, "exec")
    shell.user_ns[_ITEMS] = items()
    try:
        exec(code, shell.user_ns)  # noqa: S102  the user's own cell
    finally:
        shell.user_ns.pop(_ITEMS, None)
