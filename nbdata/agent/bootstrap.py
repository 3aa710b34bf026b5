"""The first code of an agent's process, and of a mount's.

It runs by path. The arguments are the name of the endpoint or mount, the import path, and the module whose ``main``
gets the name.

It forks once before it imports anything, and its first process ends, so the launching process need not wait. The import
path is the client's. ``python -m`` would begin with the working directory, where a file ``queue.py`` would replace
Python's own. The package is the one that contains this file, even if the path has another.
"""

import os
import sys

if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    os.umask(0o077)
    sys.path[:] = sys.argv[2].split("\n")
    from importlib import util

    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    spec = util.spec_from_file_location(
        "nbdata", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["nbdata"] = util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["nbdata"])
    from importlib import import_module

    import_module(sys.argv[3]).main(sys.argv[1])
