"""`nbdata.shift`: has Python's own functions for files take URLs, until that is undone."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from nbdata.errors import BadOption
from nbdata.files.names import STORES, store_url
from nbdata.files.shifted.uses import OTHERS, SCHEMES, SERVERS, Use, active
from nbdata.paths import canonical, is_url
from nbdata.redaction import redacted

__all__ = ["Shift", "shift", "shift_of_thread"]

# Guards what is active, and the replacing of functions.
_lock = threading.RLock()
# A child gets it free, and the functions all replaced or none of them.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class Shift(Use):
    """One use of `nbdata.shift`: undo it with `off`, or by leaving its ``with`` block.

    Attributes
    ----------
    places : tuple of str
        The protocols and beginnings of URLs that it is for; empty for all.
    """

    @property
    def is_on(self) -> bool:
        """Whether it is still on."""
        return self in active

    def off(self) -> None:
        """Undo it; does nothing the second time.

        The functions of Python are restored when the last use is off. A function that another program has replaced
        meanwhile stays as that program left it; nbdata's, which it may call, then only passes on.
        """
        from nbdata.files.shifted import replacing

        with _lock:
            if self in active:
                active.remove(self)
            if not active:
                replacing.restore()

    def __enter__(self) -> Shift:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.off()

    def __repr__(self) -> str:
        what = ", ".join(map(redacted, self.places)) or "all stores"
        return f"<nbdata.shift for {what}: {'on' if self.is_on else 'off'}>"


def shift(*places: str, storage_options: Mapping[str, Any] | None = None, verify: str = "auto") -> Shift:
    """Have Python's own functions for files take URLs of stores, in this process, until that is undone.

    ``open``, ``os``, ``os.path``, ``glob``, ``shutil`` and ``pathlib`` then take ``s3://bucket/file`` where they take
    a path. Paths of the disk are handled as before, by Python's own functions. Names that a module has imported before
    (``from glob import glob``) are replaced, too. ``shutil`` copies and moves between store and disk as `pull`,
    `push` and `copy` do: with a check of the space, verified, and resumed after a kill.

    It cannot reach what opens files in C (h5py, cv2, ffmpeg), other programs, and processes that Python starts anew
    (``spawn``): call it there, too, such as by ``ProcessPoolExecutor(initializer=nbdata.shift)``. Processes of
    ``fork`` have it.

    Parameters
    ----------
    *places : str
        Protocols such as ``"s3"``, or URLs such as ``"s3://bucket/data"``: only for what begins so. None: all stores.
    storage_options : dict, optional
        Storage options by their fsspec names, as for `nbdata.pull`. A server that a URL names (http, sftp …) gets
        them only if `places` name it.
    verify : str, default "auto"
        ``"auto"`` compares files that are read or written as a whole with the checksum in the store; ``"none"`` does
        not.

    Returns
    -------
    Shift
        Call its ``off()``, or use it in ``with``. Uses may be nested, and end in any order; the latest one that is for
        a URL decides its options.

    Raises
    ------
    BadOption
        For a protocol that is none of a store, or options for servers that are not named.

    Examples
    --------
    >>> with nbdata.shift():  # doctest: +SKIP
    ...     for name in os.listdir("s3://bucket/data"):
    ...         with open(f"s3://bucket/data/{name}") as file:
    ...             print(name, len(file.read()))
    """
    if verify not in ("auto", "none"):
        raise BadOption(f"shift: verify={verify!r}", expected="'auto' or 'none'")
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise BadOption(
            f"shift: storage_options is {type(storage_options).__name__}", expected="a dict of options"
        )
    made = Shift(tuple(map(_place, places)), storage_options or {}, verify)
    if made.options and (unnamed := sorted({*SERVERS} & set(made.places))):
        what = "every web server" if unnamed[0].startswith("http") else "every server"
        raise BadOption(
            f"shift: options for {unnamed[0]} would go to {what}",
            expected="the server that gets them",
            remedy=f'Write shift("{unnamed[0]}://server/", storage_options=…)',
        )
    return _on(made)


def shift_of_thread(storage_options: Mapping[str, Any]) -> Shift:
    """Do the same for all stores, in this thread only."""
    return _on(Shift((), storage_options, "auto", threading.get_ident()))


def _on(made: Shift) -> Shift:
    from nbdata.files.shifted import replacing

    with _lock:
        active.append(made)
        try:
            replacing.replace()
        except BaseException:
            made.off()
            raise
    return made


def _place(place: str) -> str:
    if not isinstance(place, str):
        raise BadOption(f"shift: {place!r} is no text", expected='a protocol such as "s3", or a URL')
    url = store_url(canonical(place)) if ":/" in place else ""
    scheme = (url.partition("://")[0] if is_url(url) else place).lower()
    if scheme not in SCHEMES:
        raise BadOption(
            f"shift: {redacted(place)!r} is no protocol of a store",
            expected=f"a URL, or one of {', '.join((*STORES, *OTHERS))}",
        )
    return url or scheme.removeprefix("nb")
