"""The notebook interface: magics and progress bars. Loaded by ``%load_ext nbdata``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from nbdata.operation import slots
from nbdata.version import __version__

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load", "unload"]

# The attribute of a shell that says whether the line of the first load was shown.
_TOLD = "_nbdata_was_loaded"


def load(shell: InteractiveShell) -> None:
    """Register the magics and show progress in the cell's output."""
    from nbdata.notebook import magics, panels

    magics.register(shell)
    in_cells = "IPKernelApp" in shell.config
    slots.display = panels.NotebookDisplay if in_cells else panels.TerminalDisplay
    panels.register(shell, in_cells=in_cells)
    if not getattr(shell, _TOLD, False):  # once in a session, however often it is loaded again
        setattr(shell, _TOLD, True)
        sys.stdout.write(f"nbdata {__version__}: %nbdata? lists the verbs, %pull? explains one\n")


def unload(shell: InteractiveShell) -> None:
    """Remove the magics."""
    from nbdata.display import TextDisplay
    from nbdata.notebook import magics, panels

    magics.unregister(shell)
    panels.unregister(shell)
    slots.display = TextDisplay
