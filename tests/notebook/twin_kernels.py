"""Two real kernels that get the same requests, one of them with nbdata loaded; their answers must be equal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from nbdata.notebook.general_magics import NAME
from nbdata.notebook.shift_magic import NAME as SHIFT
from nbdata.verbs import VERBS
from tests.kernel import Kernel
from tests.waiting import PATIENCE

__all__ = ["OWN_MAGICS", "TwinKernels", "cell", "without_own"]

#: The magics that nbdata adds; it replaces `%ls`, which runs IPython's own unless a URL follows.
OWN_MAGICS = {f"%{name}" for name in (*VERBS, SHIFT, NAME) if name != "ls"} | {"%%cache_stream"}

# Values that differ between any two kernels: addresses, process ids, and the files of cells, named by process id.
_CHANGING = [
    (re.compile(r"\x1b\[[\d;]*m"), ""),
    (re.compile(r"0x[0-9a-f]{6,}"), "0x…"),
    (re.compile(r"ipykernel_\d+"), "ipykernel_…"),
    (re.compile(r"\b\d+(\.\d+)?(e[+-]\d+)? (ns|us|µs|μs|ms|s)\b"), "… s"),
]

# Jedi calls the same value now a module and now a statement, as it happens to look at it; without nbdata, too.
_BY_CHANCE = {"module": "module or statement", "statement": "module or statement"}


class TwinKernels:
    """A kernel without nbdata and a kernel with it, in one folder; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.without, self.beside = Kernel(folder), Kernel(folder)

    def __enter__(self) -> TwinKernels:
        self.without.__enter__()
        self.beside.__enter__()
        cell(self.without, "pass")  # both have run equally many cells
        assert cell(self.beside, "%load_ext nbdata")["reply"]["status"] == "ok"
        # Types are computed within a time limit, which a busy machine would exceed at different names.
        self.same(cell, "%config IPCompleter.jedi_compute_type_timeout = 1_000_000")
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.beside.__exit__(kind, error, trace)
        self.without.__exit__(kind, error, trace)

    def both(self, ask: Callable[..., Any], *question: Any, **more: Any) -> tuple[Any, Any]:
        """Return the answers of both kernels, without nbdata first."""
        return ask(self.without, *question, **more), ask(self.beside, *question, **more)

    def same(self, ask: Callable[..., Any], *question: Any, **more: Any) -> Any:
        """Fail unless both kernels answer alike, and return the answer."""
        without, beside = self.both(ask, *question, **more)
        assert beside == without, f"{question}: without nbdata\n{without}\nand beside nbdata\n{beside}"
        return without


def cell(kernel: Kernel, code: str, **request: Any) -> dict[str, Any]:
    """Run a cell; return its messages in order and its reply, without what differs between any two kernels."""
    asked = kernel.client.execute(code, allow_stdin=False, **request)
    return answer(kernel, asked)


def answer(kernel: Kernel, asked: str) -> dict[str, Any]:
    """Return the messages and the reply of a cell that was started."""
    start = len(kernel.page.messages)
    kernel.collect(asked)
    shown: list[list[Any]] = []
    for message in kernel.page.messages[start:]:
        kind, content = message["msg_type"], message["content"]
        if message["parent_header"].get("msg_id") != asked or kind in ("status", "execute_input"):
            continue
        if kind == "stream":  # how a text is cut into messages depends on the machine's load
            kind, content = content["name"], content["text"]
            if shown and shown[-1][0] == kind:
                shown[-1][1] += content
                continue
        shown.append([kind, content])
    (reply,) = replies(kernel, [asked])
    return {"shown": _comparable(shown), "reply": reply}


def replies(kernel: Kernel, asked: Sequence[str]) -> list[dict[str, Any]]:
    """Return the replies to requests; a request that a kernel does not reply to fails at once."""
    last = kernel.client.kernel_info()
    found: dict[str, dict[str, Any]] = {}
    while last not in found:
        message = kernel.client.get_shell_msg(timeout=PATIENCE)
        found[message["parent_header"]["msg_id"]] = message["content"]
    return [_comparable(found.get(one, {"status": "the kernel did not reply"})) for one in asked]


def without_own(completed: dict[str, Any]) -> dict[str, Any]:
    """Return a reply to Tab without the names of nbdata's magics, which are offered beside IPython's."""
    kept = dict(completed)
    kept["matches"] = [match for match in completed["matches"] if match not in OWN_MAGICS]
    if not kept["matches"]:  # nothing is replaced then
        kept["cursor_start"] = kept["cursor_end"]
    (key,) = completed["metadata"]
    offered = [one for one in completed["metadata"][key] if one["text"] not in OWN_MAGICS]
    kept["metadata"] = {key: [{**one, "type": _BY_CHANCE.get(one["type"], one["type"])} for one in offered]}
    return kept


def _comparable(value: Any) -> Any:
    """Replace what differs between any two kernels."""
    if isinstance(value, str):
        for pattern, same in _CHANGING:
            value = pattern.sub(same, value)
        return value
    if isinstance(value, dict):
        return {
            key: _comparable(inner) for key, inner in value.items() if key != "engine_info"
        }  # the kernel's name
    return [_comparable(inner) for inner in value] if isinstance(value, list) else value
