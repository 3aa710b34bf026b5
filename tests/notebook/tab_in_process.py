"""A program that presses Tab in IPython without a kernel: before nbdata is loaded, while it is, and after unloading.

It writes into a file, as JSON, the answers of each way in which a front end asks IPython: `Completer.complete`, its
successor `Completer.completions`, and the completer of the terminal. Jedi is off, so that IPython uses its own
completer of Python; the kernels of other tests use Jedi.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from IPython.terminal.ptutils import IPythonPTCompleter
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from tests.notebook.tab_lines import LINES, SETTING, split


def answers(shell: InteractiveShell, every: int = 1) -> dict[str, Any]:
    """Return what each way of asking offers for lines; for the terminal, which asks like the second, of fewer lines."""
    terminal = IPythonPTCompleter(shell=shell)
    found: dict[str, Any] = {}
    for number, line in enumerate(LINES[::every]):
        code, cursor = split(line)
        row, column = code[:cursor].count("\n"), len(code[:cursor].rpartition("\n")[2])
        with provisionalcompleter(), warnings.catch_warnings():
            warnings.simplefilter("ignore", PendingDeprecationWarning)
            fragment, texts = shell.Completer.complete(line_buffer=code.split("\n")[row], cursor_pos=column)
            new = [[c.text, c.start, c.end, c.type] for c in shell.Completer.completions(code, cursor)]
        shown = terminal.get_completions(Document(code, cursor), CompleteEvent()) if number % 5 == 0 else ()
        found[line] = {
            "complete": [[text, fragment] for text in texts],
            "completions": new,
            "terminal": [[c.text, c.start_position, c.display_text, c.display_meta_text] for c in shown],
        }
    return found


def main() -> None:
    """Write the answers for each state."""
    shell = InteractiveShell.instance()
    shell.Completer.use_jedi = False
    assert shell.run_cell(SETTING).success
    written = {"without": answers(shell)}
    shell.run_line_magic("load_ext", "nbdata")
    written["loaded"] = answers(shell)
    shell.run_line_magic("reload_ext", "nbdata")
    shell.run_line_magic("unload_ext", "nbdata")
    written["unloaded"] = answers(shell, every=5)
    Path(sys.argv[1]).write_text(json.dumps(written))


if __name__ == "__main__":
    main()
