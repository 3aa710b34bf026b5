"""``make faults``: runs all fault campaigns and prints their tables.

Options: ``ARGS="--seed N --runs N --kills N --disks N --write"``. Kills can use trees of several sizes:
``--tree 200MB 2GB --kills 100 20 --kernel-kills 50 10``. Runs that would exceed ``--minutes`` are left out, kills last;
the tables state what was run. ``--write`` rewrites ``docs/reliability.md``.

Exit status 1 if any run ended in a way that is not permitted. Small disks must be mounted; without root, this happens
in a user name space if the system allows one.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Runs a command in a user name space, where it may mount a tmpfs that other processes do not see.
_APART = ("unshare", "--user", "--map-root-user", "--mount")
# Appended to the path: `tests` is found in the checkout, but nbdata is the installed one.
sys.path.append(str(ROOT))

from nbdata.client.agents import stop_all  # noqa: E402
from nbdata.demo.server import EmbeddedServer  # noqa: E402
from nbdata.sizes import parse_size  # noqa: E402
from tests import isolation  # noqa: E402
from tests.faults.campaign import EXTRACTIONS, PACKS, STREAMS, run_all  # noqa: E402
from tests.faults.disks import run_all as run_disks  # noqa: E402
from tests.faults.goods import Goods  # noqa: E402
from tests.faults.kills import Killed, agent, kill_all  # noqa: E402
from tests.faults.packs import ARCHIVES, INTO_SHARDS, OTHERS, RECORDS, VOLUMES, kill_packs  # noqa: E402
from tests.faults.scene import Scene  # noqa: E402
from tests.faults.services import kill_services  # noqa: E402
from tests.faults.tables import body_share, campaign_tables, disk_tables, kill_tables, page  # noqa: E402
from tests.faults.trainers import train_all  # noqa: E402
from tests.faults.trees import Tree  # noqa: E402


def main() -> int:
    """Run the campaigns, show the tables, and write the page if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=200, help="of pull and push in turn")
    parser.add_argument("--extractions", type=int, default=40, help="runs of untar_volumes")
    parser.add_argument("--packings", type=int, default=20, help="runs of pack")
    parser.add_argument("--streams", type=int, default=20, help="passes through tar shards")
    parser.add_argument(
        "--tree", nargs="+", type=parse_size, default=[80_000_000], help="bytes, amid which to kill"
    )
    parser.add_argument("--kills", nargs="+", type=int, default=[45], help="of the agent, for each tree")
    parser.add_argument(
        "--kernel-kills", nargs="+", type=int, default=[15], help="of a kernel, for each tree"
    )
    parser.add_argument("--trainers", type=int, default=20, help="kills of a trainer, for each packing")
    parser.add_argument(
        "--services", type=int, default=20, help="kills of a loader service, its workers, and its consumers"
    )
    parser.add_argument("--packs", type=int, default=20, help="kills of the agent amid pack")
    parser.add_argument(
        "--records", type=int, default=6, help="kills of the agent amid pack into FFRecord files"
    )
    parser.add_argument(
        "--archives", type=int, default=30, help="kills of the agent amid pack into the volumes of an archive"
    )
    parser.add_argument(
        "--to-store", type=int, default=30, help="kills of the agent amid archives that go to a store"
    )
    parser.add_argument(
        "--to-shards", type=int, default=20, help="kills of the agent amid archives that go into shards"
    )
    parser.add_argument(
        "--others", type=int, default=20, help="kills of the agent amid several archives, and a single file"
    )
    parser.add_argument("--disks", type=int, default=96, help="with too little room")
    parser.add_argument(
        "--only",
        type=int,
        help=f"this run alone; extractions begin at {EXTRACTIONS}, packs at {PACKS}, streams at {STREAMS}",
    )
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no more after so many")
    parser.add_argument("--write", action="store_true", help="make docs/reliability.md anew")
    options = parser.parse_args()
    if options.disks and os.geteuid() and _may_have_name_spaces():
        os.execvp(_APART[0], [*_APART, sys.executable, *sys.argv])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that server and agent are stopped
    isolation.isolate()  # a private runtime folder, without the user's own settings
    try:
        with tempfile.TemporaryDirectory(prefix="nbdata-faults-") as folder:
            return _run(Path(folder), options)
    finally:
        stop_all(now=True)
        isolation.pytest_unconfigure()


def _run(folder: Path, options: argparse.Namespace) -> int:
    end = time.monotonic() + options.minutes * 60

    def over() -> bool:
        return time.monotonic() > end

    with EmbeddedServer.start(folder / "server", kind="seaweedfs", private=False) as server:
        several = {"seed": options.seed, "told": _told, "switch": os.environ.update}
        scene = Scene(server, folder / "work", seed=options.seed)
        numbers: Iterable[int] = (
            *range(options.runs),
            *range(EXTRACTIONS, EXTRACTIONS + options.extractions),
            *range(PACKS, PACKS + options.packings),
            *range(STREAMS, STREAMS + options.streams),
        )
        numbers = itertools.takewhile(
            lambda _: not over(), numbers if options.only is None else [options.only]
        )
        results = list(run_all(scene, numbers=numbers, **several))
        state = _state_of(agent()) if results else "not been looked at"
        print(f"the agent afterwards: {state}", flush=True)
        scene.close()
        disks = []
        if options.disks:
            goods = Goods(server, folder / "goods", seed=options.seed)
            numbers = itertools.takewhile(lambda _: not over(), range(options.disks))
            disks = list(run_disks(goods, seed=options.seed, numbers=numbers, told=_told))
            goods.close()
        trained = []
        if options.trainers and not over():
            os.environ.update(server.environment())
            for each in train_all(server, folder / "trainers", count=options.trainers, seed=options.seed):
                _told(each.line)
                trained.append(each)
        served = []
        if options.services and not over():
            for outcome in kill_services(folder / "services", kills=options.services, seed=options.seed):
                _told(outcome.line)
                served.append(outcome)
        packed = []
        kinds = (
            (options.records, RECORDS),
            (options.archives, ARCHIVES),
            (options.to_store, VOLUMES),
            (options.to_shards, INTO_SHARDS),
            (options.others, OTHERS),
        )
        if (options.packs or any(kills for kills, _ in kinds)) and not over():
            tree = Tree(server, folder / "packed", size=options.tree[0], seed=options.seed)
            packed = list(kill_packs(tree, kills=options.packs, over=over, **several))
            for kills, sources in kinds:
                some = {"kills": kills, "sources": sources, "over": over}
                packed += kill_packs(tree, **some, **several)
            tree.close()
        killed: list[Killed] = []
        for size, kills, kernel_kills in zip(options.tree, options.kills, options.kernel_kills, strict=True):
            tree = Tree(server, folder / "killed", size=size, seed=options.seed)
            some = {"kills": kills, "kernel_kills": kernel_kills, "over": over}
            killed += kill_all(tree, **some, **several)
            tree.close()
    print(f"\n{campaign_tables(results)}\n{kill_tables(killed)}\n{disk_tables(disks)}")
    if options.write:
        text = page(
            results,
            killed,
            disks,
            said=" ".join(sys.argv[1:]),
            agent=state,
            commit=_commit(),
            date=time.strftime("%Y-%m-%d"),
            machine=_machine(),
        )
        (ROOT / "docs" / "reliability.md").write_text(text, encoding="utf-8")
    bad = [each for each in (*results, *trained, *served, *packed, *killed, *disks) if not each.good]
    for each in bad:
        print(each.line, file=sys.stderr)
    print(
        f"{len(results)} runs, {len(killed)} kills, {sum(each.kills for each in trained)} kills of trainers, "
        f"{sum(each.kills for each in served)} kills of services, their workers and consumers, "
        f"{len(packed)} kills of packs and archives to a store, "
        f"{len(disks)} on small disks, {len(bad)} bad; "
        f"{body_share(results):.0%} of faults in bodies"
    )
    return 1 if bad else 0


def _may_have_name_spaces() -> bool:
    return subprocess.run([*_APART, "true"], capture_output=True, check=False).returncode == 0


def _told(line: str) -> None:
    print(line, flush=True)


def _state_of(pid: int) -> str:
    """Return the resource use of a process as text."""
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
