"""The names of moxing, for scripts that were written for it: ``from nbdata.files import mox``.

``mox.file`` has its functions for files and folders.
"""

from __future__ import annotations

from nbdata.files.mox import file

__all__ = ["file"]
