"""The Jupyter server extension: routes below ``nbdata/api/`` for the JupyterLab panel.

The server asks the agents directly and uses no kernel. So it does not matter if a kernel is busy, dead or in another
environment. Looking at the panel neither starts an agent nor keeps one alive; a button that runs something does.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

__all__ = ["_load_jupyter_server_extension"]


def _load_jupyter_server_extension(app: ServerApp) -> None:
    """Add the routes, and keep the server awake while jobs run. Jupyter calls this function and requires its name."""
    from nbdata.client.context import own
    from nbdata.server.bounds import Bounds, Nbdata
    from nbdata.server.disks import Disks
    from nbdata.server.feed import Feed
    from nbdata.server.routes import routes
    from nbdata.server.workers import Workers

    own(f"JupyterLab's panel, process {os.getpid()}")
    workers, root = Workers(), str(app.root_dir)
    feed = Feed(workers, root, app.web_app.settings)
    app.web_app.add_handlers(  # type: ignore[no-untyped-call]
        ".*$",
        routes(
            app.web_app.settings["base_url"],
            feed,
            Disks(workers, root, feed.written),
            workers,
            Bounds(Nbdata(parent=app).roots, root),
        ),
    )
    app.io_loop.add_callback(feed.start)
    app.log.info("nbdata: panel at nbdata/api")
