"""``make faults``: all campaigns, with their tables; ``ARGS="--seed N --runs N --kills N --disks N --write"``.

Status 1 if any run ended as none may. ``--write`` makes ``docs/reliability.md`` anew. Small disks have to be mounted:
who is not root does that in a name space of its own, where there may be one.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
# A user who may mount a tmpfs, where nobody else sees it.
_APART = ("unshare", "--user", "--map-root-user", "--mount")
# At the end, so that `tests` is found there and nbdata where it is installed.
sys.path.append(str(ROOT))

from nbdata.client.agents import stop_all  # noqa: E402
from nbdata.demo.server import EmbeddedServer  # noqa: E402
from tests.conftest import pytest_configure, pytest_unconfigure  # noqa: E402
from tests.faults.campaign import run_all  # noqa: E402
from tests.faults.disks import run_all as run_disks  # noqa: E402
from tests.faults.goods import Goods  # noqa: E402
from tests.faults.kills import agent, kill_all  # noqa: E402
from tests.faults.scene import Scene  # noqa: E402
from tests.faults.tables import body_share, campaign_tables, disk_tables, kill_tables, page  # noqa: E402


def main() -> int:
    """Run, show, and write if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=200, help="of pull and push in turn")
    parser.add_argument("--kills", type=int, default=40, help="of the agent, amid pull and push in turn")
    parser.add_argument("--disks", type=int, default=96, help="with too little room")
    parser.add_argument("--only", type=int, help="this run alone")
    parser.add_argument("--write", action="store_true", help="make docs/reliability.md anew")
    options = parser.parse_args()
    if options.disks and os.geteuid() and _may_have_name_spaces():
        os.execvp(_APART[0], [*_APART, sys.executable, *sys.argv])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that server and agent are ended
    pytest_configure()  # a private runtime folder, and nothing of the user's own settings
    try:
        with tempfile.TemporaryDirectory(prefix="nbdata-faults-") as folder:
            return _run(Path(folder), options)
    finally:
        stop_all(now=True)
        pytest_unconfigure()


def _run(folder: Path, options: argparse.Namespace) -> int:
    with EmbeddedServer.start(folder / "server", kind="seaweedfs") as server:
        scene = Scene(server, folder / "work", seed=options.seed)
        several = {"seed": options.seed, "told": _told, "switch": os.environ.update}
        numbers = range(options.runs) if options.only is None else [options.only]
        results = list(run_all(scene, numbers=numbers, **several))
        state = _state_of(agent()) if results else "not been looked at"
        print(f"the agent afterwards: {state}", flush=True)
        killed = list(kill_all(scene, kills=options.kills, **several))
        scene.close()
        disks = []
        if options.disks:
            goods = Goods(server, folder / "goods", seed=options.seed)
            disks = list(run_disks(goods, seed=options.seed, numbers=range(options.disks), told=_told))
            goods.close()
    print(f"\n{campaign_tables(results)}\n{kill_tables(killed)}\n{disk_tables(disks)}")
    if options.write:
        text = page(
            results,
            killed,
            disks,
            seed=options.seed,
            agent=state,
            commit=_commit(),
            date=time.strftime("%Y-%m-%d"),
            machine=_machine(),
        )
        (ROOT / "docs" / "reliability.md").write_text(text, encoding="utf-8")
    bad = [each for each in (*results, *killed, *disks) if not each.good]
    for each in bad:
        print(each.line, file=sys.stderr)
    print(
        f"{len(results)} runs, {len(killed)} kills, {len(disks)} on small disks, {len(bad)} bad; "
        f"{body_share(results):.0%} of faults in bodies"
    )
    return 1 if bad else 0


def _may_have_name_spaces() -> bool:
    return subprocess.run([*_APART, "true"], capture_output=True, check=False).returncode == 0


def _told(line: str) -> None:
    print(line, flush=True)


def _state_of(pid: int) -> str:
    """What a process holds."""
    process = Path("/proc", str(pid))
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return (
        f"{status['Threads'].strip()} threads, {len(list((process / 'fd').iterdir()))} open files, "
        f"{int(status['VmRSS'].split()[0]) // 1024} MiB"
    )


def _commit() -> str:
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or "unknown"


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {round(memory / 2**30)} GiB of memory, "
        f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}, Python {platform.python_version()}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
