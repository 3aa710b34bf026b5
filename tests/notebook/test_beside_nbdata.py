"""A notebook with nbdata loaded works as one without it: outputs, errors, magics, questions, interrupts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nbdata.verbs import VERBS
from tests.kernel import Kernel
from tests.notebook.twin_kernels import OWN_MAGICS, TwinKernels, answer, cell, replies

# One statement a line: of others, IPython shows more or fewer lines in tracebacks, by chance.
_CLASSES = """
class Table:
    def __repr__(self):
        return "a table"
    def _repr_html_(self):
        return "<table><tr><td>1</td></tr></table>"
class Broken:
    def _repr_html_(self):
        raise ValueError("no HTML")
class Silent:
    def _ipython_display_(self):
        print("shown by itself")
class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": "p", "application/json": {"a": 1}}
class BadRepr:
    def __repr__(self):
        raise RuntimeError("no text")
class Own(Exception):
    def _render_traceback_(self):
        return ["its own traceback"]
"""

# Cells that run in this order in both kernels; later ones use names of earlier ones.
CELLS = {
    "values": [
        _CLASSES,
        "1 + 1",
        "{'b': 1, 'a': [1, 2, {'c': (3,)}]}",
        "None",
        "'text with\\nlines and ünï'",
        "list(range(2000))",
        "{n: str(n) * 3 for n in range(60)}",
        "Table()",
        "Broken()",
        "Silent()",
        "Bundle()",
        "BadRepr()",
        "[Table(), Broken]",
        "1;",
        "_, __",
        "In[3:6], Out[4], _4",
        "from IPython.display import HTML, display, clear_output\nHTML('<b>x</b>')",
        "display(1, Table(), metadata={'text/plain': {'k': 1}})",
        "handle = display('first', display_id='own'); handle.update('second')",
        "clear_output(wait=True); print('after')",
        "%precision 3\n3.14159265",
        "%precision\n3.14159265",
        "get_ipython().ast_node_interactivity = 'all'",
        "1\n2",
        "get_ipython().ast_node_interactivity = 'last_expr'",
    ],
    "streams": [
        "import sys\nprint('a'); print('b', file=sys.stderr); print('c'); sys.stderr.write('d'); print('e', end='')",
        "print('x' * 10_000)",
        "sys.stdout.write('nö newline')",
        "import logging; logging.warning('told'); logging.info('not'); logging.getLogger('nbdata.own').error('told')",
        "import warnings\nfor _ in range(2): warnings.warn('careful')",
        "warnings.warn('old', DeprecationWarning); warnings.warn('quiet', ResourceWarning)",
        "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='t'); t.start(); t.join(); print('after')",
        "%%capture got\nprint('held'); print('err', file=sys.stderr); 5",
        "got.stdout, got.stderr, len(got.outputs)",
        "%%capture --no-stderr got\nprint('held'); print('err', file=sys.stderr)",
        "import io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()) as f: print('in')\nf.getvalue()",
        "input('asked')",
        "sys.excepthook, sys.displayhook.__class__",
    ],
    "errors": [
        "1 / 0",
        "nothing_of_this_name",
        "x = (1,\n",
        "def f(:\n  pass",
        "  indented = 1\nx",
        "def inner(n):\n    return 1 / n\ndef outer():\n    value = 'local'\n    return inner(0)\nouter()",
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('second') from error",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    undefined",
        "import qqmodule; qqmodule.fails()",
        "import nothing_of_this_name",
        "def again(): again()\ntry:\n    again()\nexcept RecursionError as e: print(type(e))",
        "raise KeyboardInterrupt",
        "raise SystemExit(3)",
        "raise Own",
        "raise OSError(2, 'No such file', 'there')",
        "assert 1 == 2, 'it is not'",
        "%tb",
        "%xmode Plain\n1 / 0",
        "outer()",
        "%xmode Verbose",
        "outer()",
        "%xmode Minimal",
        "outer()",
        "%xmode Context",
        "import asyncio\nasync def fails():\n    raise ValueError('async')\nawait fails()",
        "%nothing_of_this_name",
        "%%nothing_of_this_name\nx",
        "%timeit 1 / 0",
        "%run nothing.py",
        "open('nothing')",
        "eval('1 +')",
        "f'{1 / 0}'",
        "lambda: (yield)\nreturn 1",
    ],
    "magics": [
        "%history -n 3-5",
        "%history -o 2",
        "%who int",
        "%who_ls function",
        "%pwd",
        "%cd data\n%ls",
        "%cd -q ..\n%pwd",
        "%ls",
        "ls",
        "%ls -a",
        "%ls data",
        "%ls nothing",
        "%ls data.csv data/one.txt",
        "which = 'data'\n%ls $which",
        "%ls {which}",
        "found = %ls data\nfound",
        "found = !ls data\nfound",
        "%alias hello echo hello %s\n%hello you",
        "hello automagic",
        "%run script.py one two",
        "script_value",
        "%run -i script.py fail",
        "%run -n script.py",
        "%timeit -n1 -r1 pass",
        "%timeit -n1 -r1 -q pass",
        "result = %timeit -n1 -r1 -o -q pass\ntype(result)",
        "%%timeit -n1 -r1 y = 1\ny",
        "%time sum(range(10))",
        "%%time\nprint('timed')",
        "!touch written.txt",
        "%%writefile written.txt\nline one\nline two",
        "%%writefile -a written.txt\nline three",
        "%cat written.txt",
        "!cat written.txt; exit 3",
        "_exit_code",
        "!!echo two lines; echo more",
        "%%bash\necho from bash; echo wrong >&2; exit 2",
        "%%sh\necho $0",
        "%%html\n<i>x</i>",
        "%env NBTEST=1",
        "%env NBTEST",
        "%set_env NBTEST 2\n%env NBTEST",
        "%macro again 2\n%pastebin?",
        "%psearch os.pa*",
        "%pinfo qqmodule.fails",
        "%pdoc len",
        "%psource qqmodule.fails",
        "len?",
        "qqmodule.fails??",
        "nothing?",
        "%timeit?",
        "*qq*?",
        "%config IPCompleter.greedy",
        "%automagic",
        "%automagic",
        "%load script.py",
        "%load_ext nothing_of_this_name",
        "%load_ext autoreload\n%autoreload 0",
        "%store?",
        "%dhist",
        "%pushd data\n%popd",
        "%reset_selective -f ^found$\n%who list",
        "%notebook?",
    ],
    "python": [
        "import asyncio\nawait asyncio.sleep(0)\nprint('awaited')",
        "async def gives():\n    yield 1\n[x async for x in gives()]",
        "await asyncio.gather(asyncio.sleep(0, 'a'), asyncio.sleep(0, 'b'))",
        "%autoawait",
        "for i in range(3):\n    %time i\n    !echo $i",
        "if True:\n    %pwd",
        "def magical():\n    %env NBTEST\nmagical()",
        "x = 5; x",
        "x % 3",
        "x %ls",
        "%%time\n%ls data",
        "import copy\ncopy.copy",
        "copy",
        "pack = 3\npack -1",
        "du = ls = quota = [1]\ndu",
        "ls",
        "quota[0]",
        "del du, ls, quota, pack, copy",
        "sorted(name for name in globals() if not name.startswith('_'))",
        "globals()['__name__'], __builtins__.__name__",
        "import inspect; inspect.currentframe().f_code.co_name",
        "/len 'abc'",
        ",len a b",
        ";len a b",
        "",
        "   ",
        "# only a comment",
        "'''\n%pull in a text\n'''",
        "x = '%pull'\nprint('%ls', x)",
        "?",
    ],
}


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.in_ci("magics")
def test_cells_show_the_same(twins: TwinKernels, kind: str) -> None:
    differing = {}
    for code in CELLS[kind]:
        without, beside = twins.both(cell, code)
        if beside != without:
            differing[code] = {"without": without, "beside": beside}
    assert differing == {}, str(differing)


def test_names_of_verbs_are_magics_beside_nbdata(twins: TwinKernels) -> None:
    """This is meant: without a per cent sign, too, a line that begins with a magic's name is the magic's."""
    without, beside = twins.both(cell, "pull --no-such-option x")
    assert without["reply"]["ename"] == "SyntaxError"
    assert beside["reply"]["ename"] == "BadOption"


def inspected(kernel: Kernel, names: list[str]) -> list[Any]:
    return replies(
        kernel, [kernel.client.inspect(name, detail_level=level) for name in names for level in (0, 1)]
    )


def test_lsmagic_lists_the_same_and_nbdatas_own(twins: TwinKernels) -> None:
    without, beside = twins.both(lambda kernel: kernel.run("%lsmagic").displays[0].split())
    assert {name for name in beside if name not in without} == OWN_MAGICS
    assert [name for name in beside if name not in OWN_MAGICS] == without


def test_objects_are_described_the_same(twins: TwinKernels) -> None:
    twins.same(
        cell,
        "import os, json\nnumber = 5\ndef own(a, *, b=1):\n    'Its manual.'\nclass Kind:\n    'A kind.'",
    )
    names = [
        "os.path.join",
        "print",
        "number",
        "own",
        "own(",
        "Kind",
        "Kind()",
        "json",
        "%timeit",
        "%%time",
        "nothing",
    ]
    found = twins.same(
        inspected, [*names, "os.path.join(", "", " ", "number +", "'text'", "größe", "%cd", "if"]
    )
    assert found[0]["found"]
    assert "Its manual." in str(found[6])


def test_ls_says_that_it_takes_urls(twins: TwinKernels) -> None:
    """This is meant: the manual of `%ls` names both."""
    without, beside = (found[0]["data"]["text/plain"] for found in twins.both(inspected, ["%ls"]))
    assert "ls -F --color" in without
    assert "nbdata's for a URL" in beside


def test_questions_to_the_kernel_are_answered_the_same(twins: TwinKernels) -> None:
    codes = [
        "x = 1",
        "x = (",
        "def f():",
        "def f():\n    x",
        "if 1:\n  x\n",
        "%time x",
        "%%time",
        "%%time\nx",
        "x = (",
    ]
    codes += [
        "!ls",
        "!ls \\",
        "'''",
        "'open",
        "x = 1 \\",
        "for",
        "1 +",
        "",
        " ",
        "%ls",
        "%pullx",
        "os?",
        "await x",
        "x]",
    ]
    twins.same(lambda kernel: replies(kernel, [kernel.client.is_complete(code) for code in codes]))
    twins.same(
        cell, "value = 3", user_expressions={"sum": "1 + value", "bad": "1 / 0", "html": "Table()", "x": "("}
    )
    twins.same(cell, "silent = 4", silent=True)
    twins.same(cell, "1 / 0", silent=True, user_expressions={"sum": "silent"})
    twins.same(cell, "'kept out of the history'", store_history=False)
    twins.same(cell, "1 / 0", stop_on_error=False)
    twins.same(lambda kernel: replies(kernel, [kernel.client.comm_info()]))
    twins.same(
        lambda kernel: replies(kernel, [kernel.client.history(hist_access_type="tail", n=2, raw=True)])[0][
            "status"
        ]
    )


def test_a_cell_after_an_error_is_aborted_the_same(twins: TwinKernels, folder: Path) -> None:
    def two(kernel: Kernel) -> list[Any]:
        pipe = folder / "error"
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        # A cell is only aborted if its request is there before the error.
        asked = [kernel.client.execute(code) for code in ("open('error').read(); 1 / 0", "print('not run')")]
        os.close(os.open(pipe, os.O_WRONLY))
        kernel.collect(asked[0])
        return [(one["status"], one.get("ename")) for one in replies(kernel, asked)]

    assert twins.same(two) == [("error", "ZeroDivisionError"), ("aborted", None)]


def test_an_interrupt_ends_a_plain_cell_the_same(twins: TwinKernels, folder: Path) -> None:
    twins.same(cell, "import os")

    def interrupted(kernel: Kernel) -> Any:
        pipe = folder / "pipe"
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        # All in one line without Python functions, so that the traceback does not depend on the moment.
        asked = kernel.start("os.read(os.open('pipe', os.O_RDONLY), 1)")
        writer = os.open(pipe, os.O_WRONLY)  # waits until the cell has opened it for reading
        kernel.manager.interrupt_kernel()
        os.close(writer)  # ends the reading if it began after the signal
        return answer(kernel, asked)

    found = twins.same(interrupted)
    assert found["reply"]["ename"] == "KeyboardInterrupt"
    twins.same(cell, "print('works on')")


def test_loading_leaves_no_name_in_the_users_namespace(twins: TwinKernels) -> None:
    names = "sorted(set(get_ipython().user_ns))"
    found = twins.same(cell, names)["shown"][-1][1]["data"]["text/plain"]
    assert not any(f"'{verb}'" in found for verb in (*VERBS, "nbdata"))
