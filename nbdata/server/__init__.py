"""The Jupyter server's face: routes below ``nbdata/api/`` for the JupyterLab panel.

The server asks the agents; nothing passes through a kernel, so one that is busy, dead or of another environment
does not matter. It neither starts an agent nor keeps one alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

__all__ = ["_load_jupyter_server_extension"]


def _load_jupyter_server_extension(app: ServerApp) -> None:
    """Add the routes, and keep the server awake while jobs run; called by Jupyter, whose name this is."""
    from nbdata.server.disks import Disks
    from nbdata.server.feed import Feed
    from nbdata.server.routes import routes
    from nbdata.server.workers import Workers

    workers, root = Workers(), str(app.root_dir)
    feed = Feed(workers, root, app.web_app.settings)
    app.web_app.add_handlers(  # type: ignore[no-untyped-call]
        ".*$", routes(app.web_app.settings["base_url"], feed, Disks(workers, root), workers)
    )
    app.io_loop.add_callback(feed.start)
    app.log.info("nbdata: panel at nbdata/api")
