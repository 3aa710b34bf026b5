"""Python's own functions for files, taking URLs: what `nbdata.shift` puts in their place, and how it is undone.

`shift` switches, `uses` knows what is on, `replacing` replaces the functions and restores them. What they do with a URL
is in `os_calls`, `os_paths`, `globbing`, `shutil_calls`, `trees`, `jobs` and `pathlib_calls`. Every other path goes to
Python's own function, unchanged.
"""

from __future__ import annotations

from nbdata.files.shifted.shift import Shift, shift, shift_of_thread
from nbdata.files.shifted.uses import active

__all__ = ["Shift", "active", "shift", "shift_of_thread"]
