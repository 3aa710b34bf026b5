"""An embedded S3 server and a real sample data set, for the demo, the tutorials and the tests.

`server` starts a server on loopback. `programs` lists the supported servers and their commands. `supervisor` is the
small process that ends a server with its owner. `dataset` makes a set of tar.gz volumes with md5 sidecars from the
files of the running Python. `serve` starts a store for experiments. These modules are loaded only when they are used.
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

    Its supervisor ends the server and removes its folder however this process ends, even by SIGTERM or SIGKILL.

    Parameters
    ----------
    folder : path, optional
        Folder for the server's data, which is kept. None: a temporary folder.
    size : int, optional
        Bytes of this Python's files to pack; None: 8 MB.
    server : {'auto', 'seaweedfs', 'moto'}
        Which server; ``auto`` is SeaweedFS if it is installed, else moto.

    Returns
    -------
    PlayStore
        Ends with `PlayStore.stop` or with its ``with`` block; ``print(store.lines)`` shows lines to paste.

    Examples
    --------
    >>> with nbdata.demo.serve() as store:  # doctest: +SKIP
    ...     nbdata.pull(f"{store.url}compressed/", "volumes", storage_options=store.storage_options())
    """
    from nbdata.demo.serving import serve as start

    return start(folder=folder, size=size, server=server)
