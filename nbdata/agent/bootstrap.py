"""The first code of an agent's process; run by path, with the import path and the endpoint's name as arguments.

It forks once before anything is imported and its first process ends, so that who launched it has nothing to wait
for. The import path is the client's: ``python -m`` would begin with the working directory, where any ``queue.py`` would
be taken for Python's own.
"""

import os
import sys

if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    os.umask(0o077)
    sys.path[:] = sys.argv[2].split("\n")
    from nbdata.agent.main import main

    main(sys.argv[1])
