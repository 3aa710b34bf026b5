"""A loader service hands each batch over as its mode says, over real sockets, and goes on from its state."""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nbdata.errors import BadOption, NbdataError, NotFound, StoreUnavailable
from nbdata.loaders.service import Client, client, serve
from tests.loaders.service.loaders import Numbers, number_of
from tests.waiting import wait_until

MODES = pytest.mark.parametrize("mode", ["share", "broadcast"])


def taken(address: str, epochs: int = 1, **options: Any) -> list[list[int]]:
    """Return the numbers of each epoch that one client gets."""
    with Client(address, **options) as one:
        return [[number_of(batch) for batch in one] for _ in range(epochs)]


def together(address: str, clients: int, epochs: int) -> list[list[list[int]]]:
    """Return what each of several clients gets, side by side."""
    got: list[list[list[int]]] = [[] for _ in range(clients)]
    threads = [threading.Thread(target=lambda mine=mine: mine.extend(taken(address, epochs))) for mine in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def test_share_gives_each_batch_to_one_consumer() -> None:
    with serve(Numbers(30), consumers=2) as service:
        one, other = together(service.address, 2, epochs=3)
    for mine, theirs in zip(one, other, strict=True):
        assert sorted(mine + theirs) == list(range(30))
        assert mine
        assert theirs


def test_broadcast_gives_each_consumer_all_batches_in_order() -> None:
    loader = Numbers(30)
    with serve(loader, consumers=3, mode="broadcast") as service:
        assert together(service.address, 3, epochs=2) == 3 * [2 * [list(range(30))]]
    assert loader.made[:60] == [(epoch, number) for epoch in (0, 1) for number in range(30)]


@MODES
def test_no_more_is_made_than_ahead_allows(mode: str) -> None:
    loader = Numbers(50)
    with serve(loader, ahead=3 * 41_000, mode=mode) as service, Client(service.address) as one:
        batches = iter(one)
        for number in range(5):
            assert number_of(next(batches)) == number
            wait_until(lambda number=number: len(loader.made) >= number + 3)
        assert len(loader.made) == 7


def test_the_slowest_consumer_of_a_broadcast_decides() -> None:
    with serve(Numbers(40), ahead=4 * 41_000, consumers=2, mode="broadcast") as service:
        fast, slow = Client(service.address), Client(service.address)
        got: list[int] = []
        thread = threading.Thread(target=lambda: got.extend(map(number_of, fast)))
        thread.start()
        batches = iter(slow)
        for number in range(40):
            assert number_of(next(batches)) == number
            assert len(got) <= number + 5
        assert next(batches, None) is None
        thread.join()
        assert got == list(range(40))
        fast.close()
        slow.close()


def test_what_a_consumer_holds_that_leaves_goes_to_others_first() -> None:
    with serve(Numbers(10), ahead=1 << 20) as service, Client(service.address) as stays:
        leaves = Client(service.address)
        batches = iter(leaves)
        assert [number_of(next(batches)) for _ in range(2)] == [0, 1]
        leaves.close(used=False)
        assert sorted(map(number_of, stays)) == list(range(1, 10))


def test_a_block_that_ends_by_an_error_gives_the_batch_in_hand_back() -> None:
    with serve(Numbers(6)) as service:
        with pytest.raises(ZeroDivisionError), Client(service.address) as one:
            number_of(next(iter(one))) // 0
        assert taken(service.address) == [list(range(6))]
        with Client(service.address) as one:
            assert number_of(next(iter(one))) == 0
        assert taken(service.address) == [list(range(1, 6))], "a block that ends well has used it"


def test_another_pass_goes_on_where_a_break_left_the_loop() -> None:
    with serve(Numbers(8)) as service, Client(service.address) as one:
        assert [number_of(batch) for batch in itertools.islice(one, 3)] == [0, 1, 2]
        assert [number_of(batch) for batch in one] == [3, 4, 5, 6, 7]


def test_a_loop_that_counts_batches_and_never_asks_for_the_end_gets_each_epoch() -> None:
    # As Lightning does. The rest of an epoch that was counted out is empty, and so is not a pass.
    with serve(Numbers(4)) as service, Client(service.address) as one:
        for _ in range(3):
            assert [number_of(batch) for batch in itertools.islice(one, len(one))] == [0, 1, 2, 3]


@pytest.mark.parametrize(("of", "at"), [(Client, "_keep"), (client, "decoded")])
def test_a_ctrl_c_amid_a_message_loses_no_batch(of: Any, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with serve(Numbers(4)) as service, Client(service.address) as one:
        with monkeypatch.context() as patch:
            patch.setattr(of, at, interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(iter(one))
        batches = iter(one)
        assert number_of(next(batches)) == 0
        assert [number_of(batch) for batch in batches] == [1, 2, 3]


@MODES
def test_a_state_in_mid_epoch_resumes_exactly(mode: str) -> None:
    with serve(Numbers(20), mode=mode) as service, Client(service.address) as one:
        used = [number_of(batch) for batch in itertools.islice(one, 7)]
        state = one.state_dict()
    for restored in ("client", "server"):
        with serve(Numbers(20), mode=mode) as service, Client(service.address) as one:
            (service if restored == "server" else one).load_state_dict(state)
            rest = [number_of(batch) for batch in one]
            assert used + rest == list(range(20))
            assert one.epoch == 0
            assert [number_of(batch) for batch in one] == list(range(20))
            assert one.epoch == 1


def test_a_state_counts_what_others_have_acknowledged_behind_it() -> None:
    with serve(Numbers(12), consumers=2) as service, Client(service.address, ahead=1) as slow:
        fast = Client(service.address, ahead=1)
        got: list[int] = []

        def take() -> None:
            got.extend(number_of(batch) for batch in itertools.islice(fast, 5))

        thread = threading.Thread(target=take)
        thread.start()
        mine = number_of(next(iter(slow)))
        thread.join()
        fast.close()
        state = service.state_dict()
        assert state["first"] == min(mine, 6 - 6 * (mine > 5))
        assert sorted({*state["done"], *range(state["first"])}) == sorted(got)
        own = slow.state_dict()
    with serve(Numbers(12)) as service, Client(service.address) as one:
        one.load_state_dict(own)
        assert sorted([*got, mine, *map(number_of, one)]) == list(range(12))


def test_no_batch_of_the_old_position_is_sent_once_another_is_set() -> None:
    with serve(Numbers(6)) as service, Client(service.address) as one:
        state, making = service.state_dict(), service._making
        state.update(first=3, loader={"epoch": 0, "at": 3, "count": 6})

        def write_state() -> None:  # between dealing and sending
            if making.current.first == 0 and any(one.out for one in making.consumers.values()):
                service.load_state_dict(state)

        making.write_state = write_state  # type: ignore[method-assign]
        batches = iter(one)
        assert number_of(next(batches)) == 3
        assert [number_of(batch) for batch in batches] == [4, 5]


@MODES
def test_a_consumer_in_mid_epoch_goes_on_where_the_service_is_set_to(mode: str) -> None:
    with serve(Numbers(6), mode=mode) as service, Client(service.address, ahead=1, patience=30) as one:
        state = service.state_dict()
        state.update(first=3, loader={"epoch": 0, "at": 3, "count": 6})
        batches = iter(one)
        assert number_of(next(batches)) == 0
        service.load_state_dict(state)
        # Else it would be sent batches that it does not take, and wait for ever.
        assert not any(consumer.asks for consumer in service._making.consumers.values())
        assert [number_of(batch) for batch in batches] == [3, 4, 5]


def test_set_epoch_and_the_length_come_from_the_loader() -> None:
    with serve(Numbers(5)) as service, Client(service.address) as one:
        assert len(one) == 5
        one.set_epoch(7)
        assert [batch["epoch"] for batch in one] == 5 * [7]
        assert one.epoch == 7
        assert [batch["epoch"] for batch in one] == 5 * [8]
        next(iter(one))
        with pytest.raises(BadOption, match="in the middle of an epoch"):
            one.set_epoch(3)
        one.set_epoch(9)  # the one that runs


def test_a_state_that_the_loader_refuses_changes_nothing() -> None:
    with serve(Numbers(8)) as service, Client(service.address) as one:
        assert [number_of(batch) for batch in itertools.islice(one, 3)] == [0, 1, 2]
        one.close()
        state = service.state_dict()
        assert state["first"] == 3
        for wrong in ({}, {**state, "loader": {"other": 1}}, {**state, "first": -1}, {**state, "done": None}):
            with pytest.raises(BadOption, match=r"no state of a loader service|the loader refuses it"):
                service.load_state_dict(wrong)
        assert taken(service.address) == [[3, 4, 5, 6, 7]]


def test_an_epoch_begins_once_enough_consumers_ask_for_it() -> None:
    with serve(Numbers(4), consumers=2) as service:
        first: list[list[int]] = []
        thread = threading.Thread(target=lambda: first.extend(taken(service.address)))
        thread.start()
        wait_until(lambda: len(service.consumers) == 1)
        assert not first
        second = taken(service.address)
        thread.join()
        assert sorted(first[0] + second[0]) == list(range(4))


def test_any_iterable_is_served_and_one_without_a_state_says_so() -> None:
    batches = [{"a": np.arange(3)}, [b"x", "y", (1.5, None)]]
    with serve(batches) as service, Client(service.address) as one:
        for _ in range(2):
            got = list(one)
            assert got[1] == batches[1]
            assert (got[0]["a"] == np.arange(3)).all()
        with pytest.raises(BadOption, match="no state_dict"):
            one.state_dict()
        with pytest.raises(BadOption, match="no set_epoch"):
            one.set_epoch(1)
    with pytest.raises(BadOption, match="an iterator has one pass only"):
        serve(iter(batches))


@pytest.mark.parametrize(
    ("loader", "told"),
    [
        ([{"a": [1, {2}]}], r"cannot hand over batch\['a'\]\[1\].*got builtins.set"),
        ([[object()]], r"cannot hand over batch\[0\].*got builtins.object"),
        ([], "the loader yields no batch"),
    ],
)
def test_what_cannot_be_handed_over_is_refused_by_name_when_the_service_starts(
    loader: list[Any], told: str
) -> None:
    with pytest.raises(BadOption, match=told):
        serve(loader)


def test_an_error_of_the_loader_reaches_the_consumers() -> None:
    class Failing(Numbers):
        def __iter__(self) -> Any:
            yield from itertools.islice(super().__iter__(), 3)
            raise ValueError("no more")

    with serve(Failing(9)) as service, Client(service.address) as one:
        batches = iter(one)
        assert [number_of(next(batches)) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(NbdataError, match="the loader failed: ValueError: no more"):
            next(batches)


def test_a_failure_of_the_service_reaches_the_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(Numbers(3)) as service, Client(service.address) as one:
        assert len(one) == 3
        monkeypatch.setattr(service._serving._telling, "look", lambda: 1 / 0)
        with pytest.raises(NbdataError, match="the service failed: ZeroDivisionError"):
            list(one)


def test_a_state_that_is_no_json_is_refused_by_name(tmp_path: Path) -> None:
    class Odd(Numbers):
        def state_dict(self) -> dict[str, Any]:
            return {**super().state_dict(), "other": object()}

    with pytest.raises(BadOption, match="the state of this loader is no JSON"):
        serve(Odd(3), state=str(tmp_path / "state"))
    with serve(Odd(3)) as service, Client(service.address) as one:
        with pytest.raises(BadOption, match="the state of this loader is no JSON"):
            one.state_dict()
        assert [number_of(batch) for batch in one] == [0, 1, 2]


def test_one_service_at_a_time_writes_a_file_of_a_state(tmp_path: Path) -> None:
    path, other = tmp_path / "state", tmp_path / "link"
    other.symlink_to(tmp_path)
    for name in ("one", "next"):
        with serve(Numbers(3), name=name, state=str(path)) as service:
            with pytest.raises(BadOption, match="a loader service that runs has this file"):
                serve(Numbers(3), name="other", state=str(other / "state"))
            folder = Path(service.address).parent
    assert not [entry for entry in folder.iterdir() if entry.name.startswith(".")]


def test_a_consumer_of_another_version_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(Numbers(3)) as service:
        monkeypatch.setattr(client, "__version__", "0.0.1")
        with Client(service.address) as one, pytest.raises(BadOption, match=r"another version.*0\.0\.1"):
            next(iter(one))


def test_one_service_at_a_time_has_a_name_and_nothing_is_left_of_it() -> None:
    with serve(Numbers(3), name="twice") as service:
        left = Path(service.address).parent / "killed.sock"
        left.touch()
        with serve(Numbers(3), name="another"):
            assert not left.exists(), "the next service removes what a killed one left"
        with pytest.raises(BadOption, match="with the name twice runs already"):
            serve(Numbers(3), name="twice")
        folder = Path(service.address).parent
        assert {path.name for path in folder.iterdir()} >= {"twice.json", "twice.sock"}
        assert taken(service.address) == [[0, 1, 2]]
        waits = Client(service.address, patience=0.5)
    assert {path.name for path in folder.iterdir() if path.name.startswith("twice")} == {"twice.lock"}
    with pytest.raises(NotFound, match="no loader service"):
        Client(service.address)
    with pytest.raises(StoreUnavailable, match="has not answered"):
        next(iter(waits))
    waits.close()


def test_a_service_of_a_long_path_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("long" * 20) / "run"
    folder.mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("NBDATA_RUNTIME_DIR", str(folder))
    with serve(Numbers(3)) as service:
        assert len(os.fsencode(service.address)) > 107
        assert taken(service.address) == [[0, 1, 2]]
    assert [path.name for path in (folder / "services").iterdir()] == ["samples.lock"]


def test_the_example_of_the_page_runs() -> None:
    page = (Path(__file__).parents[3] / "docs/service.md").read_text()
    examples = [block.partition("```")[0] for block in page.split("```python\n")[1:]]
    (example,) = (one for one in examples if "serve(batches)" in one)
    exec(example, {})


@pytest.mark.parametrize(
    "options", [{"mode": "both"}, {"consumers": 0}, {"ahead": 0}, {"listen": "udp://x:1"}, {"name": "../x"}]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match=next(iter(options))):
        serve(Numbers(3), **options)
