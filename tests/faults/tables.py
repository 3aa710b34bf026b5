"""The tables of the campaigns, and the page ``docs/reliability.md`` that holds them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from tests.faults.campaign import RIGHT, SAID, STALL, Result
from tests.faults.kills import Killed
from tests.faults.proxy import AFTER, BEFORE, BETWEEN, BODY, HEAD
from tests.faults.scene import BIG, BIG_SIZE, SMALL_SIZE

__all__ = ["body_share", "campaign_tables", "kill_tables", "page"]

VERBS = ("pull", "push")
_QUARTERS = [f"{BODY}, {at}–{at + 25} %" for at in range(0, 100, 25)]
_PHASES = [BEFORE, HEAD, *_QUARTERS, AFTER, BETWEEN]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as Markdown has it."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def _events(results: Iterable[Result], verb: str) -> Counter[tuple[str, str]]:
    """Faults that came to pass, by kind and phase."""
    found: Counter[tuple[str, str]] = Counter()
    for result in results:
        if result.verb == verb:
            for _, fault in result.tally.faults:
                found[
                    fault.kind, _QUARTERS[int(fault.share * 4)] if fault.where == BODY else fault.where
                ] += 1
    return found


def body_share(results: Iterable[Result]) -> float:
    """Which part of the faults came within a body."""
    where = Counter(fault.where == BODY for result in results for _, fault in result.tally.faults)
    return where[True] / max(1, where.total())


def _many(values: Sequence[float], form: str) -> str:
    return f"{statistics.median(values):{form}} / {max(values):{form}}" if values else "–"


def campaign_tables(results: Sequence[Result]) -> str:
    """Outcomes, the histogram, and what the faults cost."""
    by = {verb: [result for result in results if result.verb == verb] for verb in VERBS}
    rows: list[list[object]] = [["runs", *(len(by[verb]) for verb in VERBS)]]
    for name, test in {
        "right at once": lambda r: r.end == RIGHT,
        "said with an error; right when said again": lambda r: r.end == SAID,
        "**wrong, hung, or not to be completed**": lambda r: not r.good,
    }.items():
        rows.append([name, *(sum(map(test, by[verb])) for verb in VERBS)])
    rows += [
        ["faults that came to pass", *(sum(len(r.tally.faults) for r in by[verb]) for verb in VERBS)],
        ["of them within a body", *(f"{body_share(by[verb]):.0%}" for verb in VERBS)],
        [
            "objects with a flipped byte that nobody vouches for",
            *(sum(r.unguarded for r in by[v]) for v in VERBS),
        ],
        ["uploads left unfinished at the store", *(sum(r.left for r in by[verb]) for verb in VERBS)],
        [
            "tries again in a run, median / most",
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
        parts.append(
            "Errors that were said, by class:\n\n"
            + table(["error", "objects or lines"], errors.most_common())
        )
    for verb in VERBS:
        events = _events(results, verb)
        kinds = sorted({kind for kind, _ in events})
        phases = [phase for phase in _PHASES if any(events[kind, phase] for kind in kinds)]
        cells = [[kind, *(events[kind, phase] or "" for phase in phases)] for kind in kinds]
        parts.append(
            f"Faults of {verb}, by kind and by where in an exchange they came:\n\n"
            + table(["", *phases], cells)
        )
    return "\n".join(parts)


def kill_tables(killed: Sequence[Killed]) -> str:
    """Kills by verb."""
    by = {verb: [each for each in killed if each.verb == verb] for verb in VERBS}
    rows: list[list[object]] = [
        ["kills", *(len(by[verb]) for verb in VERBS)],
        ["identical when said again", *(sum(each.good for each in by[verb]) for verb in VERBS)],
        [
            "MB moved again, median / most",
            *(_many([k.again / 1e6 for k in by[verb]], ".1f") for verb in VERBS),
        ],
        [
            "the same as parts a connection, median / most",
            *(_many([k.again / k.connections / (16 << 20) for k in by[verb]], ".2f") for verb in VERBS),
        ],
    ]
    return table(["", *VERBS], rows)


def page(
    results: Sequence[Result], killed: Sequence[Killed], *, seed: int, commit: str, date: str, machine: str
) -> str:
    """All of ``docs/reliability.md``."""
    return f"""# What nbdata does when the line breaks

Made by `make faults ARGS="--seed {seed} --runs {len(results)} --kills {len(killed)} --write"` on {date}, at commit
{commit}, on {machine}. A short part of it runs with the tests.

## Faults on the way

{len(results)} runs of `pull` and `push`, half each, against SeaweedFS behind a proxy that spoils what goes through
it (`tests/faults/`). A run moves 300 objects of {SMALL_SIZE:,} bytes and {len(BIG)} of {BIG_SIZE // 10**6} MB, which
go in parts, through one agent that serves all runs. Afterwards all files are compared, byte for byte, with what they
were to be. A line must end in time with all bytes right, or with an error that says what is wrong; then nothing wrong
stands under a final name, and the same line said again without faults goes well.

{campaign_tables(results)}
*reset* is a connection reset by RST, *cut* one that is closed within a body, *flip* a byte that is changed on the
way, *stall* silence for ever on an open connection (nbdata was told to give up after {STALL:g} s:
`NBDATA_STALL_TIMEOUT`, 30 if nobody says otherwise), *delay* a short one, *refuse* an answer 500, 503 with
Retry-After or 429, *drop* a connection that is closed in place of an answer, *swallow* one that is closed when the
store has done what was asked, *replace* an object that is overwritten between two of its parts, which a pull must not
mix. A tenth of the small objects are such that the store vouches for no checksum of them, as with keys of KMS: a byte
that is flipped there can be noticed by nobody.

## Kills

`kill -9` of the agent amid `pull` and `push` of the same data with one to three connections, at a random byte
between 5 and 95 %, held by the proxy until the process is dead; then the same line again. What is moved again is
counted by the proxy.

{kill_tables(killed)}"""
