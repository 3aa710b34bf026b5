"""`tests.loaders.train` with a cache beside the state file that holds a third of the data."""

from __future__ import annotations

import os
import sys

from tests.loaders.train import main

if __name__ == "__main__":
    main(*sys.argv[1:], cache=40 * 4500, cache_dir=os.path.join(os.path.dirname(sys.argv[2]), "disk"))
