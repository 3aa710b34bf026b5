"""The command, where its script is not on the path: ``python -m nbdata``."""

import sys

from nbdata.cli import main

sys.exit(main())
