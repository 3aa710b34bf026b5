"""The command, where its script is not on the path: ``python -m nbdata``."""

import sys

from nbdata.cli import main

if __name__ == "__main__":
    sys.exit(main())
