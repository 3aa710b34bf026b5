"""nbdata's file system under other protocols: ``nbs3`` and its like, and s3 itself until that is undone."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from fsspec.registry import _registry, register_implementation

from nbdata.errors import BadOption
from nbdata.files.filesystem import FileSystem
from nbdata.files.names import STORES

__all__ = ["Use", "use_for"]


class Use:
    """What `use_for` returns: undo it with `off`, or by leaving its ``with`` block."""

    def __init__(self, before: dict[str, Any]) -> None:
        self._before = before

    def off(self) -> None:
        """Have fsspec use for each protocol what it used before; does nothing the second time."""
        before, self._before = self._before, {}
        for protocol, cls in before.items():
            if cls is None:
                _registry.pop(protocol, None)
            else:
                register_implementation(protocol, cls, clobber=True)

    def __enter__(self) -> Use:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.off()

    def __repr__(self) -> str:
        return f"<nbdata for {', '.join(self._before)}>" if self._before else "<nbdata for no protocol>"


def use_for(*protocols: str) -> Use:
    """Have fsspec, and so every library that stands on it, use nbdata for these protocols.

    File systems that a library has made before stay as they are.

    Parameters
    ----------
    *protocols : str
        Of ``s3``, ``s3a``, ``obs``, ``gs``, ``gcs``, ``ais``, ``az``, ``abfs``, ``abfss``, ``http`` and ``https``.

    Returns
    -------
    Use
        Call its ``off()``, or use it in ``with``, to undo this.

    Raises
    ------
    BadOption
        For any other protocol: there nbdata itself asks fsspec.

    Examples
    --------
    >>> with nbdata.files.use_for("s3"):  # doctest: +SKIP
    ...     table = pandas.read_parquet("s3://bucket/table.parquet")
    """
    if unknown := [one for one in protocols if one not in STORES]:
        raise BadOption(
            f"nbdata has no store of its own for {', '.join(unknown)}",
            expected=f"some of {', '.join(STORES)}",
        )
    before = {}
    for protocol in protocols:
        before[protocol] = _registry.get(protocol)
        register_implementation(protocol, _class_for(protocol), clobber=True)
    return Use(before)


def _class_for(protocol: str) -> type[FileSystem]:
    cls: type[FileSystem] = globals()[_name(protocol)]
    return cls


def _name(protocol: str) -> str:
    return f"FileSystemFor{protocol.capitalize()}"


# One class for each protocol: fsspec looks for them by their names in the package's entry points, and pickle does, too.
for _store in STORES:
    for _protocol in (_store, f"nb{_store}"):
        globals()[_name(_protocol)] = type(
            _name(_protocol),
            (FileSystem,),
            {"protocol": _protocol, "target": _store, "__module__": __name__, "__doc__": FileSystem.__doc__},
        )
