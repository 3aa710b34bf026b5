"""An embedded S3 server and a real sample data set, for the demo, the tutorials and the tests.

`server` starts a server on loopback, `programs` knows which servers there are and how they are
called, `supervisor` is the small process that ends a server with its owner, and `dataset` makes a
set of tar.gz volumes with md5 sidecars from the files of the running Python. `serve` is a store to
play with. Nothing of this is loaded before it is called.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbdata.demo.serving import PlayStore

__all__ = ["serve"]


def serve(
    *, folder: str | os.PathLike[str] | None = None, size: int | None = None, server: str = "auto"
) -> PlayStore:
    """Start an S3 server on a free port of 127.0.0.1, with a bucket that holds some data.

    Its supervisor ends it and removes its folder however this process ends, also by SIGTERM or SIGKILL.

    Parameters
    ----------
    folder : path, optional
        Where it keeps what it has, which then stays. None: a temporary folder.
    size : int, optional
        Bytes of this Python's files that are packed; None: 8 MB.
    server : {'auto', 'seaweedfs', 'moto'}
        Which server; ``auto`` is SeaweedFS where it is installed, else moto.

    Returns
    -------
    PlayStore
        It ends with `PlayStore.stop`, or when its ``with`` is left; ``print(store.lines)`` shows lines to paste.

    Examples
    --------
    >>> with nbdata.demo.serve() as store:  # doctest: +SKIP
    ...     nbdata.pull(f"{store.url}compressed/", "volumes", storage_options=store.storage_options())
    """
    from nbdata.demo.serving import serve as start

    return start(folder=folder, size=size, server=server)
