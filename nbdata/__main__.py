"""Runs the command as ``python -m nbdata``, for when its script is not on the path."""

import sys

from nbdata.cli import main

if __name__ == "__main__":
    sys.exit(main())
