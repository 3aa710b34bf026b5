"""The tables with the campaigns' results, and the page ``docs/reliability.md`` that contains them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from tests.faults.campaign import RIGHT, SAID, STALL, Result
from tests.faults.disks import LINES, NOT_RUN, WAYS
from tests.faults.disks import Result as OnDisk
from tests.faults.kills import AGENT, ATTACHED, BOTH, DONE, KERNEL, PART, Killed
from tests.faults.kills import VERBS as KILLED_VERBS
from tests.faults.proxy import AFTER, BEFORE, BETWEEN, BODY, HEAD
from tests.faults.scene import BIG, BIG_SIZE, SMALL_SIZE
from tests.faults.small_disks import KINDS
from tests.faults.trees import FILES, FORMS, MIDDLING

__all__ = ["body_share", "campaign_tables", "disk_tables", "kill_tables", "page"]

VERBS = ("pull", "push", "untar_volumes", "pack", "stream")
_TENTHS = [(0.0, 0.05), *((at / 100, at / 100 + 0.1) for at in range(5, 95, 10)), (0.95, 1.0)]
_MOMENTS = [f"{low * 100:.0f}–{high * 100:.0f}" for low, high in _TENTHS]
_QUARTERS = [f"{BODY}, {at}–{at + 25} %" for at in range(0, 100, 25)]
_PHASES = [BEFORE, HEAD, *_QUARTERS, AFTER, BETWEEN]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format a table in Markdown."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def _events(results: Iterable[Result], verb: str) -> Counter[tuple[str, str]]:
    """Count the injected faults by kind and moment."""
    found: Counter[tuple[str, str]] = Counter()
    for result in results:
        if result.verb == verb:
            for _, fault in result.tally.faults:
                found[
                    fault.kind, _QUARTERS[int(fault.share * 4)] if fault.where == BODY else fault.where
                ] += 1
    return found


def body_share(results: Iterable[Result]) -> float:
    """Return the share of faults that were injected within a body."""
    where = Counter(fault.where == BODY for result in results for _, fault in result.tally.faults)
    return where[True] / max(1, where.total())


def _many(values: Sequence[float], form: str) -> str:
    return f"{statistics.median(values):{form}} / {max(values):{form}}" if values else "–"


def campaign_tables(results: Sequence[Result]) -> str:
    """Return the tables of the fault campaign: outcomes, faults by kind and moment, and their cost."""
    by = {verb: [result for result in results if result.verb == verb] for verb in VERBS}
    rows: list[list[object]] = [["runs", *(len(by[verb]) for verb in VERBS)]]
    for name, test in {
        "right at once": lambda r: r.end == RIGHT,
        "ended with an error; right when run again": lambda r: r.end == SAID,
        "**wrong, hung, or not to be completed**": lambda r: not r.good,
    }.items():
        rows.append([name, *(sum(map(test, by[verb])) for verb in VERBS)])
    rows += [
        ["faults that happened", *(sum(len(r.tally.faults) for r in by[verb]) for verb in VERBS)],
        ["of them within a body", *(f"{body_share(by[verb]):.0%}" for verb in VERBS)],
        [
            "flipped bytes in objects without a checksum",
            *(sum(r.unguarded for r in by[v]) for v in VERBS),
        ],
        [
            "files that were wrong after an error, and right after the next run",
            *(sum(r.unsure for r in by[v]) for v in VERBS),
        ],
        ["uploads left unfinished in the store", *(sum(r.left for r in by[verb]) for verb in VERBS)],
        [
            "retries in a run, median / most",
            *(_many([r.retries for r in by[verb]], ".0f") for verb in VERBS),
        ],
        [
            "MB moved again in a run that was right at once, median / most",
            *(_many([r.again / 1e6 for r in by[verb] if r.end == RIGHT], ".1f") for verb in VERBS),
        ],
        ["seconds of a run, median / most", *(_many([r.seconds for r in by[verb]], ".1f") for verb in VERBS)],
    ]
    parts = [table(["", *VERBS], rows)]
    errors = Counter[str]()
    for result in results:
        errors += result.errors
    if errors:
        parts.append("Errors by class:\n\n" + table(["error", "objects or lines"], errors.most_common()))
    for verb in filter(by.get, VERBS):
        events = _events(results, verb)
        kinds = sorted({kind for kind, _ in events})
        phases = [phase for phase in _PHASES if any(events[kind, phase] for kind in kinds)]
        cells = [[kind, *(events[kind, phase] or "" for phase in phases)] for kind in kinds]
        parts.append(
            f"Faults of {verb}, by kind and by position in the exchange:\n\n" + table(["", *phases], cells)
        )
    return "\n".join(parts)


def kill_tables(killed: Sequence[Killed]) -> str:
    """Return the tables of the kills for each size of tree, by killed process and by verb."""
    sizes = sorted({each.tree for each in killed})
    return "\n".join(_kills_of([each for each in killed if each.tree == size]) for size in sizes)


def _kills_of(killed: Sequence[Killed]) -> str:
    """Return the tables of the kills in one tree."""
    groups = {
        f"{victim}, {verb}": [each for each in killed if (each.victim, each.verb) == (victim, verb)]
        for victim in (AGENT, KERNEL)
        for verb in KILLED_VERBS
    }
    groups = {name: found for name, found in groups.items() if found}
    parts = [
        f"Of a tree of {killed[0].tree / 1e6:,.0f} MB:\n",
        table(["", *groups], _kill_rows(groups)),
        "When, as a share of the bytes:\n",
        table(["", *_MOMENTS, "**5–95 %**"], _moments(killed)),
    ]
    packed = {form: [each for each in killed if each.form == form] for form in FORMS}
    rows = [[form, *_extraction(found)] for form, found in packed.items() if found]
    if rows:
        head = ["", "kills", "resumed at a checkpoint", "MB of volumes read again, median / most"]
        parts += ["Extractions whose agent was killed, by the kind of the volumes:\n", table(head, rows)]
    return "\n".join(parts)


def _kill_rows(groups: Mapping[str, Sequence[Killed]]) -> list[list[object]]:
    def row(name: str, told: Callable[[Sequence[Killed]], object]) -> list[object]:
        return [name, *(told(found) for found in groups.values())]

    def moved(found: Sequence[Killed]) -> list[float]:
        return [each.again / 1e6 for each in found if each.moves_again]

    def parts(found: Sequence[Killed]) -> list[float]:
        return [e.again / e.connections / PART for e in found if e.moves_again and not e.form]

    rows = [
        row("kills", len),
        row("identical when run again, and within the bound", lambda found: sum(each.good for each in found)),
    ]
    rows += [
        row(f"then {then}", lambda found, then=then: sum(each.then == then for each in found) or "")  # type: ignore[misc]
        for then in (ATTACHED, DONE, BOTH)
    ]
    return [
        *rows,
        row(
            "most MB moved again where only a kernel died",
            lambda found: max((f"{e.again / 1e6:.1f}" for e in found if not e.moves_again), default=""),
        ),
        row("MB moved again where the agent died, median / most", lambda found: _many(moved(found), ".1f")),
        row("the same in parts per connection, median / most", lambda found: _many(parts(found), ".2f")),
    ]


def _moments(killed: Sequence[Killed]) -> list[list[object]]:
    rows: list[list[object]] = []
    for victim in (AGENT, KERNEL):
        shares = [each.share for each in killed if each.victim == victim]
        if shares:
            within = sum(0.05 <= share <= 0.95 for share in shares) / len(shares)
            counts = [sum(low <= share < high for share in shares) or "" for low, high in _TENTHS]
            rows.append([victim, *counts, f"{within:.0%}"])
    return rows


def _extraction(killed: Sequence[Killed]) -> list[object]:
    again = [each for each in killed if each.moves_again]
    return [
        len(again),
        sum(bool(each.resumed_at) for each in again),
        _many([each.again / 1e6 for each in again], ".1f"),
    ]


def disk_tables(results: Sequence[OnDisk]) -> str:
    """Return tables of how commands ended on each kind of disk, and how close they came to a limit."""
    rows: list[list[object]] = []
    for kind in KINDS:
        of = [result for result in results if result.kind == kind]
        done = [result for result in of if not result.end.startswith(NOT_RUN)]
        if of and not done:
            rows.append([kind, *["–"] * (len(WAYS) + 4), of[0].end])
            continue
        ways = Counter(way for result in done for way in result.ways)
        over = [result.over for result in done if result.over is not None]
        bad = sum(not result.good for result in done)
        rows.append(
            [
                *(kind, len(done), sum(result.filled for result in done), *(ways[way] for way in WAYS)),
                f"{max(over) / 1024:+,.0f} KiB" if over else "the kernel's",
                f"{sum(result.samples for result in done):,}",
                bad or "–",
            ]
        )
    head = ["", "runs", "filled by others", *WAYS, "most above the limit", "observations", "**bad**"]
    lines = [
        [
            said,
            *(sum(r.ways.count(way) for r in results if r.said == said) for way in WAYS),
        ]
        for said in LINES
    ]
    return f"{table(head, rows)}\n{table(['', *WAYS], lines)}"


def page(
    results: Sequence[Result],
    killed: Sequence[Killed],
    disks: Sequence[OnDisk],
    *,
    said: str,
    agent: str,
    commit: str,
    date: str,
    machine: str,
) -> str:
    """Return the whole text of ``docs/reliability.md``."""
    return f"""# How nbdata behaves under faults

For everybody who wants to know how nbdata was tested against broken connections, killed processes and full disks. The
page has three campaigns: each runs transfers while faults happen, and compares every byte afterwards.
[guarantees.md](guarantees.md) says what holds.

Made by `make faults ARGS="{said}"`
on {date}, at commit
{commit}, on {machine}. The tables list the runs that fitted into the time; kills
are dropped first. A short part of the campaigns runs with the tests.

## Faults on the way

{len(results)} runs of `pull`, `push`, `untar_volumes` and `pack`, and passes through tar shards (`stream`), against
SeaweedFS behind a proxy that injects faults (`tests/faults/`). A run moves 300 objects of {SMALL_SIZE:,} bytes and
{len(BIG)} of {BIG_SIZE // 10**6} MB, which go in parts, or reads shards of most of them, or unpacks a tar of the same
data (plain, gzip in members and as one piece, Zstandard in frames) from some 20 volumes. One agent serves all runs.

Afterwards all files are compared byte for byte with the expected ones. A command must end in time, with all bytes
right or with an error that says what is wrong. After an error, no wrong file has its final name, and the same command
succeeds without faults. One exception: an extraction writes while it reads. Its files from a volume that turns out
wrong at its end stay until the command is run again.

{campaign_tables(results)}
The faults:

- *reset*: the connection is reset by RST.
- *cut*: the connection is closed within a body.
- *flip*: a byte is changed on the way.
- *stall*: an open connection is silent for ever. nbdata was told to give up after {STALL:g} s
  (`NBDATA_STALL_TIMEOUT`, default 30 s).
- *delay*: an open connection is silent for a short time.
- *refuse*: the answer is 500, 503 with Retry-After, or 429.
- *drop*: the connection is closed in place of an answer.
- *swallow*: the connection is closed after the store has done the work.
- *replace*: the object is overwritten between two of its parts; a pull must not mix both.

For a tenth of the small objects the store has no checksum, as with KMS keys: there a flipped byte cannot be detected.
An upload stays unfinished if the response to its start was lost, because only the store knows its id. Afterwards the
agent had {agent}.

## Kills

The agent, or a Jupyter kernel that runs the command in a cell, gets `kill -9` during `pull`, `push` and
`untar_volumes` from the store. The proxy chooses a random byte of the transfer and holds it until the process is
dead. Then the same command runs again, after the death of a kernel in a new kernel. A tree has {FILES} files: small
ones, {MIDDLING} middling ones, and two big ones with a third of its bytes. Pulls and pushes have one to three
connections.

When a kernel dies, the job continues in the agent. The cell of the new kernel attaches to it, or finds it done; or
the agent is killed right after the kernel, too.

Afterwards all files are compared byte for byte, and the proxy counts the bytes that were moved again. The bound is a
part of {PART >> 20} MiB per connection and 6 MB. For an extraction, the bound is the data after its last checkpoint,
as its report says. A checkpoint is made at most every 64 MiB of volumes, after a member, and takes at most a
twentieth of the time. In compressed data it is made where a checksum proves everything before it; in gzip as one
piece there is no such place.

{kill_tables(killed)}
## Disks with too little room

{len(disks)} runs on a disk, or in a folder with a limit, that has 0.3 to 1.5 times the needed space; in a third of
the runs almost exactly the needed space. In half of them, another process fills the disk in the middle of the
transfer. The commands are a pull of a tree, `untar_volumes` of gz volumes whose content is not known beforehand,
`cache_stream --max-size`, and two pulls by two processes at once. Some run in the background. A further process
watches the disk all the time.

{disk_tables(disks)}
The outcomes:

- *right*: done at once.
- *refused*: refused before any transfer, with the numbers of the plan and of the disk.
- *filled*: ended by NotEnoughSpace in the middle, and no wrong file has its final name.
- *waited*: paused in the background.
- *bad*: afterwards a byte was wrong or missing, something was left in `.nbdata` or in the ledger of disk space, a
  number was wrong, or a limit was exceeded.

After that, space was freed. Waiting jobs continued by themselves; the other commands were run again.

A cache never exceeds its `--max-size`. A folder with a limit may exceed it by a block for each new folder, and by
three blocks of nbdata's own. Files that other programs write into a folder with a limit are not counted there,
because nbdata cannot stop them. The limit of a qgroup is not known before it is reached, so nothing can be refused
for it. User and project quotas on ext4 and XFS are not tested: that needs a kernel with `CONFIG_QFMT_V2` and
`CONFIG_XFS_QUOTA`.
"""
