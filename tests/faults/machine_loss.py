"""``make machine-loss``: runs the machine-loss check for every moment of the commands in `loss_cases`.

``ARGS="--seed N --seeds N --again N NAME …"`` selects the states and commands. Exit status 1 if any rule of `loss` is
violated.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

# Appended to the path: `tests` is found in the checkout, but nbdata is the installed one.
sys.path.append(str(Path(__file__).parents[2]))

from nbdata.demo.server import EmbeddedServer
from tests import isolation
from tests.faults.loss_cases import CASES, lost


def main() -> int:
    """Record the commands, check every state after a failure, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these: {', '.join(CASES)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5, help="random states of each moment")
    parser.add_argument("--again", type=int, default=40, help="from how many states a line is said again")
    options = parser.parse_args()
    isolation.isolate()  # a private runtime folder, without the user's own settings
    os.environ["NBDATA_HOST"] = "inline"
    bad = 0
    try:
        with (
            tempfile.TemporaryDirectory(prefix="nbdata-lost-") as folder,
            EmbeddedServer.start(Path(folder), kind="seaweedfs", private=False) as server,
        ):
            os.environ.update(server.environment())
            for name in options.names or CASES:
                began = time.monotonic()
                source = random.Random(f"{options.seed} {name}")
                with lost(name, server) as loss:
                    wrong = loss.examine(seeds=options.seeds, again=options.again, source=source)
                seconds = time.monotonic() - began
                said = f"{loss.states:,} states, said again from {loss.repeated}, {seconds:.0f} s"
                print(f"{name}: {said}: {len(wrong)} wrong", flush=True)
                for each in wrong:
                    print(f"    {each}", flush=True)
                bad += len(wrong)
    finally:
        isolation.pytest_unconfigure()
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
