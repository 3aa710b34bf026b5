"""Files in every store: `nbdata.open`, and a file system for all that speaks fsspec.

`FileSystem` is fsspec's interface over nbdata's stores. `filesystem` makes one for a URL. `use_for` has fsspec give it
for a protocol, such as s3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nbdata.files.opening import filesystem

if TYPE_CHECKING:
    from nbdata.files.filesystem import FileSystem
    from nbdata.files.registered import use_for

__all__ = ["FileSystem", "filesystem", "use_for"]


def __getattr__(name: str) -> Any:
    # fsspec takes a while to import, and not every program opens files.
    if name == "FileSystem":
        from nbdata.files.filesystem import FileSystem

        return FileSystem
    if name == "use_for":
        from nbdata.files.registered import use_for

        return use_for
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
