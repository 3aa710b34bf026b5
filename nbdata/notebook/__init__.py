"""The notebook interface: magics and progress bars. Loaded by ``%load_ext nbdata``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbdata.operation import slots

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load", "unload"]


def load(shell: InteractiveShell) -> None:
    """Register the magics and show progress in the cell's output."""
    from nbdata.notebook import magics, panels

    magics.register(shell)
    in_cells = "IPKernelApp" in shell.config
    slots.display = panels.NotebookDisplay if in_cells else panels.TerminalDisplay
    panels.register(shell, in_cells=in_cells)


def unload(shell: InteractiveShell) -> None:
    """Remove the magics."""
    from nbdata.display import TextDisplay
    from nbdata.notebook import magics, panels

    magics.unregister(shell)
    panels.unregister(shell)
    slots.display = TextDisplay
