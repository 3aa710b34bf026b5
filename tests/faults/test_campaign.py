"""A short, fixed part of the fault campaign and the kill campaign; `make faults` runs them completely."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nbdata.client.agents import stop_all
from nbdata.demo.server import EmbeddedServer
from tests.faults.campaign import EXTRACTIONS, PACKS, SAID, STREAMS, run_all
from tests.faults.kills import AGENT, BOTH, KERNEL, VERBS, kill_all
from tests.faults.packs import ARCHIVES, INTO_SHARDS, RECORDS, SOURCES, kill_packs
from tests.faults.scene import Scene
from tests.faults.tables import body_share, campaign_tables, kill_tables
from tests.faults.trees import Tree

SEED = 1
# The runs: a pull with an object that arrives wrong each time, so the pull fails; a push; the extraction of a plain tar
# with such a volume; a pack; and a pass through shards.
NUMBERS = (4, 11, EXTRACTIONS + 10, PACKS, STREAMS)
# Size of the tree for the kills.
TREE = 40_000_000


@pytest.fixture(scope="module")
def scene(seaweedfs: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(seaweedfs, tmp_path_factory.mktemp("faults"), seed=SEED)
    yield made
    made.close()


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, str]], None]]:
    """Return a function that sets environment variables for the test. The test starts with its own agent."""
    stop_all(now=True)

    def set_all(variables: dict[str, str]) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    yield set_all
    stop_all(now=True)


@pytest.mark.long
def test_whatever_breaks_on_the_way_the_bytes_are_right_or_an_error_says_why(
    scene: Scene, switch: Callable[[dict[str, str]], None]
) -> None:
    results = list(run_all(scene, seed=SEED, numbers=NUMBERS, told=print, switch=switch))
    assert [result.line for result in results if not result.good] == []
    assert {result.verb for result in results} == {"pull", "push", "untar_volumes", "pack", "stream"}
    assert [results[0].end, results[2].end] == [SAID, SAID]
    assert sum(len(result.tally.faults) for result in results) >= 25
    assert body_share(results) > 0.7
    print(campaign_tables(results))


@pytest.mark.long
def test_a_killed_agent_or_kernel_loses_no_more_than_a_part_of_each_connection(
    seaweedfs: EmbeddedServer, tmp_path: Path, switch: Callable[[dict[str, str]], None]
) -> None:
    tree = Tree(seaweedfs, tmp_path, size=TREE, seed=SEED)
    killed = list(kill_all(tree, seed=SEED, kills=3, kernel_kills=1, told=print, switch=switch))
    tree.close()
    assert [each.line for each in killed if not each.good] == []
    assert {each.verb for each in killed if each.victim == AGENT} == set(VERBS)
    assert [each.then for each in killed if each.victim == KERNEL] == [BOTH]
    print(kill_tables(killed))


@pytest.mark.long
def test_a_killed_pack_makes_the_same_shards_when_it_is_said_again(
    seaweedfs: EmbeddedServer, tmp_path: Path, switch: Callable[[dict[str, str]], None]
) -> None:
    tree = Tree(seaweedfs, tmp_path, size=TREE, seed=SEED)
    killed = list(kill_packs(tree, seed=SEED, kills=len(SOURCES), told=print, switch=switch))
    tree.close()
    assert [each.line for each in killed if not each.good] == []
    assert {each.source for each in killed} == set(SOURCES)


@pytest.mark.long
def test_killed_unpacking_into_shards_makes_the_same_shards_when_it_is_said_again(
    seaweedfs: EmbeddedServer, tmp_path: Path, switch: Callable[[dict[str, str]], None]
) -> None:
    tree = Tree(seaweedfs, tmp_path, size=TREE, seed=SEED)
    some = {"kills": 3, "sources": INTO_SHARDS}
    killed = list(kill_packs(tree, seed=SEED, told=print, switch=switch, **some))
    tree.close()
    assert [each.line for each in killed if not each.good] == []


@pytest.mark.long
def test_a_killed_pack_makes_the_same_volumes_when_it_is_said_again(
    seaweedfs: EmbeddedServer, tmp_path: Path, switch: Callable[[dict[str, str]], None]
) -> None:
    tree = Tree(seaweedfs, tmp_path, size=TREE, seed=SEED)
    some = {"kills": len(ARCHIVES), "sources": ARCHIVES}
    killed = list(kill_packs(tree, seed=SEED, told=print, switch=switch, **some))
    tree.close()
    assert [each.line for each in killed if not each.good] == []
    assert {each.source for each in killed} == set(ARCHIVES)


@pytest.mark.long
def test_a_killed_pack_makes_the_same_records_when_it_is_said_again(
    seaweedfs: EmbeddedServer, tmp_path: Path, switch: Callable[[dict[str, str]], None]
) -> None:
    tree = Tree(seaweedfs, tmp_path, size=TREE, seed=SEED)
    some = {"kills": len(RECORDS), "sources": RECORDS}
    killed = list(kill_packs(tree, seed=SEED, told=print, switch=switch, **some))
    tree.close()
    assert [each.line for each in killed if not each.good] == []
    assert {each.source for each in killed} == set(RECORDS)
