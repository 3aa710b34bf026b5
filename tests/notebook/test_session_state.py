"""What `%load_ext nbdata` changes of a session: what is documented, and nothing else; unloading undoes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbdata.notebook.general_magics import NAME
from nbdata.verbs import VERBS
from tests.kernel import Kernel
from tests.notebook.twin_kernels import cell

STATE = Path(__file__).with_name("state_of_session.py")
# What loading may change, and why.
MEANT = {
    "line magics": "nbdata's own; %ls also handles URLs",
    "cell magics": "nbdata's own",
    "event hooks": "one keeps %ls when IPython defines its aliases anew",
    "matchers": "one completes the lines of nbdata's magics",
    "displays": "reports and jobs are shown as panels",
}


def state(kernel: Kernel) -> dict[str, Any]:
    done = kernel.run(f"exec(compile(open({str(STATE)!r}).read(), 'state', 'exec'), {{}})")
    assert done.error is None, done.error
    found: dict[str, Any] = json.loads(done.text)
    return found


def said(kernel: Kernel, code: str) -> str:
    """Return what a cell shows, which may be an error; then no cell after it is aborted."""
    return str(cell(kernel, code)["shown"])


@pytest.fixture
def fresh(folder: Path) -> Iterator[Kernel]:
    """A kernel of its own, because the test unloads nbdata."""
    with Kernel(folder) as kernel:
        # What importing brings is not a matter of the session, such as modules of the standard library.
        kernel.run("import nbdata, nbdata.notebook.magics, nbdata.notebook.panels\ndel nbdata")
        yield kernel


def test_loading_changes_what_is_meant_and_unloading_restores_it(fresh: Kernel) -> None:
    before = state(fresh)
    assert fresh.run("%load_ext nbdata").error is None
    loaded = state(fresh)
    assert {name for name in before if loaded[name] != before[name]} <= MEANT.keys()
    new = {
        name: magic
        for name, magic in loaded["line magics"].items()
        if before["line magics"].get(name) != magic
    }
    assert new.keys() == {*VERBS, "shift", NAME}
    assert loaded["cell magics"].keys() - before["cell magics"].keys() == {"cache_stream"}
    assert before["line magics"].keys() & new.keys() == {"ls"}, "no other name of IPython's is taken"
    assert loaded["matchers"] == ["nbdata", *before["matchers"]]
    hooks = {
        name: [one for one in found if one not in before["event hooks"][name]]
        for name, found in loaded["event hooks"].items()
    }
    assert [name for name, found in hooks.items() if found] == ["pre_execute"]
    shown = {kind for kind, found in loaded["displays"].items() if found != before["displays"][kind]}
    assert shown == {"ipython_display"}

    assert fresh.run("%reload_ext nbdata").error is None
    again = state(fresh)
    for name, found in again.items():
        if name not in ("line magics", "cell magics", "event hooks"):  # these are new objects
            assert found == loaded[name], name
    assert again["line magics"].keys() == loaded["line magics"].keys()

    assert fresh.run("%unload_ext nbdata").error is None
    after = state(fresh)
    for name, found in after.items():
        assert found == before[name], name


def test_importing_nbdata_changes_nothing_of_the_session(folder: Path) -> None:
    with Kernel(folder) as kernel:
        before = state(kernel)
        kernel.run("%load_ext nbdata\n%unload_ext nbdata")
        after = state(kernel)
    # Modules of the standard library that nbdata imports add callbacks of their own.
    assert {name for name in before if after[name] != before[name]} <= {"at exit"}


def test_what_had_a_magics_name_has_it_again_after_unloading(fresh: Kernel) -> None:
    fresh.run("def mine(line, cell=None):\n    print('my own', line)\n")
    fresh.run("get_ipython().register_magic_function(mine, 'line', 'copy')\n%alias du echo my own du")
    fresh.run("%load_ext nbdata")
    assert "my own" not in said(fresh, "%copy x")
    assert "my own" not in said(fresh, "%du nowhere")
    fresh.run("get_ipython().register_magic_function(mine, 'line', 'pull')\n%unload_ext nbdata")
    assert fresh.run("%copy x").text == "my own x\n"
    assert fresh.run("%du x").text.split() == ["my", "own", "du", "x"]
    assert fresh.run("%pull y").text == "my own y\n", "it was defined after nbdata's"


@pytest.mark.long
def test_ls_remains_an_alias(fresh: Kernel, folder: Path) -> None:
    plain = fresh.run("%alias").text + "".join(fresh.run("%alias").displays)
    listing = fresh.run("%ls").text
    fresh.run("%load_ext nbdata")
    assert fresh.run("%alias").text + "".join(fresh.run("%alias").displays) == plain
    assert fresh.run("%ls").text == fresh.run("ls").text == listing
    fresh.run("%reset -f")
    assert fresh.run("%ls").text == listing
    assert "is not evaluated" in said(fresh, "%ls s3://bucket/{1+1}"), "a URL is nbdata's after %reset, too"
    fresh.run("%alias ls echo mine")
    assert fresh.run("%ls data").text.split() == ["mine", "data"]
    assert "is not evaluated" in said(fresh, "%ls s3://bucket/{1+1}")
    fresh.run("%unalias ls")
    assert "not found" in said(fresh, "%ls")
    fresh.run("%unload_ext nbdata")
    assert "not found" in said(fresh, "%ls")
