"""``make bench``: compares nbdata with its peers, row by row, as whole processes in turn on one server.

``ARGS="--only 'pull 8'"`` selects rows; ``--rounds`` sets the rounds; ``--json FILE`` writes all single runs. The
outputs are compared. The figures depend on the state of the machine, so read the ratios and their intervals.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench import (
    AWAY,
    BIG,
    BIN,
    COMMANDS,
    FEW,
    HUGE,
    LISTED,
    MANY,
    PLANNED,
    SMALL,
    Bench,
    Side,
    agent_pid,
    same,
    slug,
    timed,
)
from conditions import beside_a_cell, first_pull, over_tls, verified_or_not
from line import carried
from listing import SIZE, write_files
from peers import rclone_environment
from unpacking import checked, extracted, moved, packed

from nbdata.client.agents import stop_all
from nbdata.demo.server import EmbeddedServer
from nbdata.version import __version__

# A row that reaches more than this share of the line's own throughput measures the line rather than the tools.
BOUND = 0.7


def moves(bench: Bench, label: str, tools: list[str], verbs: tuple[str, ...], how: str = "") -> None:
    """Compare these tools in a pull, push or copy (within the store) of a source."""
    name = label + how
    if not any(bench.only in f"{verb} {name}" for verb in verbs):
        return
    source, (count, size) = bench.source(label), bench.data(label)
    place = f"s3://bench/{slug(label)}"
    env = rclone_environment(os.environ["AWS_ENDPOINT_URL"])

    def pulled(tool: str) -> Side:
        def after(number: int) -> None:
            out = bench.work / f"{tool}{number}"
            assert same(source, out), f"{tool} pulled other bytes"
            shutil.rmtree(out)

        return Side(
            tool,
            lambda number: COMMANDS[tool]["pull"](place, str(bench.work / f"{tool}{number}")),
            after,
            env=env,
        )

    def sent(verb: str, tool: str) -> Side:
        begin, other = str(source) if verb == "push" else place, f"{place}-{verb}-{tool}"

        def after(number: int) -> None:
            if number == 0:  # compared once, because fetching it takes long; later only its size
                back = bench.work / "back"
                timed(COMMANDS["s5cmd"]["pull"](f"{other}{number}", str(back)))
                assert same(source, back), f"{verb} by {tool} made other bytes"
                shutil.rmtree(back)
            assert bench.stored(f"{other}{number}") == (count * size, count), f"{tool}: not all"
            timed([str(BIN / "s5cmd"), "rm", f"{other}{number}/*"])

        return Side(tool, lambda number: COMMANDS[tool][verb](begin, f"{other}{number}"), after, env=env)

    for verb in verbs:
        sides = [pulled(tool) if verb == "pull" else sent(verb, tool) for tool in tools]
        bench.row(f"{verb} {name}", sides, count * size)


def _again(bench: Bench, tools: list[str], place: str, env: dict[str, str]) -> list[Side]:
    """Return a side for each tool in which it pulls files that it already has."""
    return [
        Side(tool, lambda _, tool=tool: COMMANDS[tool]["nothing"](place, str(bench.work / tool)), env=env)  # type: ignore[misc]
        for tool in tools
    ]


def nothing_changed(bench: Bench, name: str) -> None:
    """Compare pulls of files that already exist."""
    row = f"pull {name}, nothing changed"
    if bench.only not in row:
        return
    source, url, (count, size) = bench.source(name), f"s3://bench/{slug(name)}", bench.data(name)
    tools = ["nbdata", "s5cmd", "rclone"]
    env = rclone_environment(os.environ["AWS_ENDPOINT_URL"])
    for tool in tools:
        timed(COMMANDS[tool]["pull"](url, str(bench.work / tool)), env={**os.environ, **env})
    bench.row(row, _again(bench, tools, url, env), count * size)
    for tool in tools:
        assert same(source, bench.work / tool)
        shutil.rmtree(bench.work / tool)


def many_unchanged(bench: Bench) -> None:
    """Compare pulls of very many files that already exist.

    nbdata has hashed the files once before, because other tools wrote them.
    """
    count = int(LISTED * bench.scale)
    row = f"pull {count:,} × {SIZE} B, nothing changed"
    if bench.only not in row:
        return
    tools = ["nbdata", "s5cmd", "rclone"]
    with bench.listed(count) as lists:
        for tool in tools:
            write_files(bench.work / tool, count)
        timed(COMMANDS["nbdata"]["nothing"](lists.place, str(bench.work / "nbdata")))
        env = rclone_environment(lists.url)
        bench.row(row, _again(bench, tools, lists.place, env), count * SIZE)
    for tool in tools:
        shutil.rmtree(bench.work / tool)


def planned(bench: Bench) -> None:
    """Compare plans of very many objects without existing files; all output is discarded."""
    count = int(PLANNED * bench.scale)
    row = f"plan {count:,} objects"
    if bench.only not in row:
        return
    with bench.listed(count) as lists:
        out = str(bench.work / "planned")
        sides = [
            Side(tool, lambda _, tool=tool: COMMANDS[tool]["plan"](lists.place, out))  # type: ignore[misc]
            for tool in ("nbdata", "s5cmd")
        ]
        bench.row(row, sides, count * SIZE)
    ours = bench.results[-2]["runs"]
    middle = {part: statistics.median(run[part] for run in ours) for part in ("wall", "memory", "agent")}
    print(
        f"A plan of {count:,} objects: {count / middle['wall']:,.0f} objects/s; at most the agent held "
        f"{middle['agent'] / 1e6:,.0f} MB, and the command {(middle['memory'] - middle['agent']) / 1e6:,.0f} MB.",
        flush=True,
    )


def campaign(bench: Bench) -> None:
    """Measure all rows."""
    fast, both = ["nbdata", "s5cmd", "rclone"], ("pull", "push")
    everybody = [*fast, "s3fs", "boto3"]
    moves(bench, SMALL, fast, both)
    nothing_changed(bench, SMALL)
    checked(bench, SMALL)
    bench.ceiling(SMALL)
    bench.drop(SMALL)
    many_unchanged(bench)
    planned(bench)
    first_pull(bench)
    moves(bench, FEW, everybody, both)
    moves(bench, FEW, fast, ("copy",))
    beside_a_cell(bench, FEW)
    bench.drop(FEW)
    moves(bench, BIG, everybody, both)
    verified_or_not(bench, BIG)
    beside_a_cell(bench, BIG)
    checked(bench, BIG)
    bench.ceiling(BIG)
    over_tls(bench, [FEW, BIG])
    bench.drop(BIG)
    moves(bench, HUGE, fast, both)
    verified_or_not(bench, HUGE)
    bench.drop(HUGE)
    checked(bench, MANY)
    bench.drop(MANY)
    extracted(bench)
    moved(bench)
    packed(bench)
    with bench.over(10, 50e6):
        for name in (FEW, "8 × 64 MiB"):
            moves(bench, name, fast, ("pull",), AWAY)
            bench.drop(name)
    over = [r["bytes"] / run["wall"] for r in bench.results if AWAY in r["row"] for run in r["runs"]]
    if over:
        most = carried(8, 2.0)
        verdict = "proxy-bound" if max(over) > BOUND * most else "not proxy-bound"
        print(f"The line alone carries {most / 1e6:,.0f} MB/s; the rows over it are {verdict}.", flush=True)
        bench.results.append({"row": "ceiling of the line", "bytes_per_second": most})


def main() -> None:
    """Run the benchmark, print the tables, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="only rows whose name has this in it")
    parser.add_argument("--scale", type=float, default=1.0, help="of the data, to try it out")
    parser.add_argument("--json", help="write every single run to this file")
    options = parser.parse_args()
    os.environ["GOMEMLIMIT"] = "2GiB"  # without it, SeaweedFS took up to 20 GB
    with tempfile.TemporaryDirectory(prefix="nbdata-bench-") as name:
        work = Path(name)
        for variable in ("RUNTIME", "STATE"):
            os.environ[f"NBDATA_{variable}_DIR"] = f"{work}/{variable.lower()}"
        print(
            f"nbdata {__version__}, Python {platform.python_version()}, {os.cpu_count()} cores\n\n"
            "| work | tool | wall | nbdata's wall over it | CPU, client | CPU, server | memory | rate "
            "| cores that others used |\n" + "|---" * 9 + "|",
            flush=True,
        )
        bench = None
        try:
            with EmbeddedServer.start(work / "server", kind="seaweedfs", private=False) as server:
                os.environ.update(server.environment(), S3_ENDPOINT_URL=server.url)
                server.create_bucket("bench")
                bench = Bench(work, server, options.rounds, options.only, options.scale)
                agent_pid()
                began = time.monotonic()
                campaign(bench)
                print(f"All of it took {(time.monotonic() - began) / 60:.1f} min.", flush=True)
        finally:
            stop_all(now=True)
            if bench is not None and options.json:
                Path(options.json).write_text(json.dumps(bench.results, indent=1))


if __name__ == "__main__":
    sys.exit(main())
