"""Run a cluster until Ctrl-C: ``python -m tests.servers.aistore FOLDER``. Prints the address of the gateway."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path

from tests.servers.aistore.cluster import cluster

if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt), cluster(Path(sys.argv[1])) as running:
        running.create_bucket("bucket")
        print(running.url, flush=True)
        signal.pause()
