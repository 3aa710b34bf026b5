"""Links and repeated names in archives that are unpacked into a store get the right content, also after a resume."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbdata.demo.server import EmbeddedServer
from nbdata.engine.unpack.targets.store.link_copies import LinkCopies
from nbdata.engine.unpack.targets.store.members_in_memory import MembersInMemory
from nbdata.errors import BadArchive, TransferFailed
from tests.conftest import client_of
from tests.engine.unpack.checkpointing import packed
from tests.engine.unpack.test_untar_to_store import MIB, in_volumes, sent, stored
from tests.engine.unpack.unpacking import untar
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("inline")

Put = Callable[[dict[str, bytes]], str]
TWICE = [("a", "file", b"one"), ("link", "hardlink", "a"), ("a", "file", b"two"), ("last", "file", b"3")]
EXPECTED = {"a": b"two", "link": b"one", "last": b"3"}


def edit(s3: EmbeddedServer, bucket: str, key: str, data: bytes | None) -> None:
    client = client_of(s3)
    if data is None:
        client.delete_object(Bucket=bucket, Key=key)
    else:
        client.put_object(Bucket=bucket, Key=key, Body=data)
    client.close()


def test_without_a_record_the_later_of_two_members_is_stored(
    put: Put, bucket: str, s3: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put(in_volumes(packed(TWICE)[0], "a.tar", 1))
    untar(f"{url}v/", f"{url}out/")
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "another"))
    assert untar(f"{url}v/", f"{url}out/").ok
    assert stored(s3, bucket, "out/") == EXPECTED


@pytest.mark.parametrize("gone", [None, "link", "a"])
def test_a_hard_link_to_a_name_that_comes_again_keeps_the_earlier_content(
    gone: str | None, put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    url = put(in_volumes(packed(TWICE)[0], "a.tar", 1))
    sent(3, f"{url}v/", f"{url}out/")
    if gone is not None:
        edit(s3, bucket, f"out/{gone}", None)
    assert untar(f"{url}v/", f"{url}out/").ok
    assert stored(s3, bucket, "out/") == EXPECTED


def test_a_later_member_waits_for_copies_of_the_earlier_one(
    put: Put, bucket: str, s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, wait, waiting = LinkCopies.send, MembersInMemory.wait_until_empty, threading.Event()
    url = put(in_volumes(packed(TWICE)[0], "a.tar", 1))

    def waits(memory: MembersInMemory) -> None:
        if "a" not in memory:  # neither the earlier one nor the later one is being sent
            waiting.set()
        wait(memory)

    def late(copies: LinkCopies, *args: Any) -> Any:
        wait_until(lambda: waiting.is_set() or stored(s3, bucket, "out/").get("a") == b"two")
        return send(copies, *args)

    monkeypatch.setattr(MembersInMemory, "wait_until_empty", waits)
    monkeypatch.setattr(LinkCopies, "send", late)
    assert untar(f"{url}v/", f"{url}out/").ok
    assert stored(s3, bucket, "out/") == EXPECTED


LINKED = [("f", "file", b"content"), ("h", "hardlink", "f"), ("s", "symlink", "f")]


def test_links_keep_existing_objects_if_overwrite_is_never(put: Put, bucket: str, s3: EmbeddedServer) -> None:
    url = put(in_volumes(packed(LINKED)[0], "a.tar", 1) | {"out/s": b"mine", "out/h": b"mine"})
    report = untar(f"{url}v/", f"{url}out/", overwrite="never")
    assert report.counts == {"extracted": 1, "skipped": 2}
    assert stored(s3, bucket, "out/") == {"f": b"content", "s": b"mine", "h": b"mine"}


def test_links_to_what_was_skipped_are_skipped(put: Put, bucket: str, s3: EmbeddedServer) -> None:
    url = put(in_volumes(packed(LINKED)[0], "a.tar", 1) | {"out/f": b"mine"})
    assert untar(f"{url}v/", f"{url}out/", overwrite="never").counts == {"skipped": 3}
    assert stored(s3, bucket, "out/") == {"f": b"mine"}


def test_links_are_conflicts_where_files_are(put: Put, bucket: str, s3: EmbeddedServer) -> None:
    url = put(in_volumes(packed(LINKED)[0], "a.tar", 1))
    untar(f"{url}v/", f"{url}out/")
    other = [("f", "file", b"CONTENT"), ("h", "hardlink", "f"), ("s", "symlink", "f")]
    edit(s3, bucket, "v/a.tar.000", packed(other)[0])
    for name in "fhs":
        edit(s3, bucket, f"out/{name}", b"mine")
    report = untar(f"{url}v/", f"{url}out/", on_error="report")
    assert report.counts == {"conflict": 3}
    assert untar(f"{url}v/", f"{url}out/", overwrite="always").ok
    assert set(stored(s3, bucket, "out/").values()) == {b"CONTENT"}


def test_links_of_an_archive_that_was_replaced_are_forgotten(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    url = put(in_volumes(packed([("old", "symlink", "f"), *LINKED])[0], "a.tar"))
    sent(3, f"{url}v/", f"{url}out/")
    for number in range(5):
        edit(s3, bucket, f"v/a.tar.{number:03}", None)
    put_again = packed([("f", "file", b"another")])[0]
    edit(s3, bucket, "v/a.tar.000", put_again)
    assert untar(f"{url}v/", f"{url}out/", overwrite="always").ok
    assert "old" not in stored(s3, bucket, "out/")


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("overwrite", ["changed", "always"])
def test_a_line_that_was_stopped_amid_the_links_goes_on_behind_its_checkpoint(
    overwrite: str, put: Put, bucket: str, s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[str, str, Any]] = [("first", "symlink", "f00")]
    made += [(f"f{n:02}", "file", bytes([n]) * 30_000) for n in range(40)]
    made += [("to a link", "hardlink", "first"), *((f"s{n}", "symlink", f"f{n:02}") for n in range(4))]
    url = put(in_volumes(packed(made)[0], "a.tar"))
    send, sent_copies = LinkCopies.send, iter(range(2))

    def stops(copies: LinkCopies, *args: Any) -> Any:
        if next(sent_copies, None) is None:
            raise KeyError("a fault")
        return send(copies, *args)

    with monkeypatch.context() as patched:
        patched.setattr(LinkCopies, "send", stops)
        with pytest.raises(Exception, match="a fault"):
            untar(f"{url}v/", f"{url}out/", overwrite=overwrite)
    report = untar(f"{url}v/", f"{url}out/", overwrite=overwrite)
    assert report.details["resumed_at"] > 500_000
    expected = {name: data for name, kind, data in made if kind == "file"}
    expected |= {"first": bytes(30_000), "to a link": bytes(30_000)}
    assert stored(s3, bucket, "out/") == expected | {f"s{n}": bytes([n]) * 30_000 for n in range(4)}
    assert untar(f"{url}v/", f"{url}out/").counts == {"unchanged": 46}


def test_a_copy_of_a_large_object_is_proven_whatever_its_parts(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    made = [("large", "file", bytes(range(256)) * (19 * MIB // 256)), ("h", "hardlink", "large")]
    url = put(in_volumes(packed(made)[0], "a.tar"))
    untar(f"{url}v/", f"{url}out/")
    edit(s3, bucket, "out/h", None)
    assert untar(f"{url}v/", f"{url}out/", part_size="16MiB").ok
    found = stored(s3, bucket, "out/")
    assert found["h"] == found["large"]


def test_links_to_what_could_not_be_stored_fail_and_are_not_left_out(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    made = [
        (b"b\xe4d".decode("utf-8", "surrogateescape"), "file", b"1"),
        ("s", "symlink", b"b\xe4d".decode("utf-8", "surrogateescape")),
    ]
    url = put(in_volumes(packed(made)[0], "a.tar", 1))
    report = untar(f"{url}v/", f"{url}out/", on_error="report")
    assert report.counts == {"failed": 2}
    with pytest.raises(TransferFailed):
        untar(f"{url}v/", f"{url}out/")


def test_a_list_asks_nothing_of_the_target(put: Put) -> None:
    url = put({"v/a.tar": packed(LINKED)[0]})
    assert untar(f"{url}v/a.tar", "s3://no-such-bucket-here/x/", list=True).counts == {"members": 3}


@pytest.mark.parametrize("kind", ["hardlink", "symlink"])
def test_copies_of_links_count_for_max_expansion(
    kind: str, put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    made = [("a", "file", bytes(100_000)), *((f"link{number}", kind, "a") for number in range(4))]
    url = put(in_volumes(packed(made)[0], "a.tar", 1))
    with pytest.raises(BadArchive, match=r"the archive expands to more than 300\.0 kB, with a copy for each"):
        untar(f"{url}v/", f"{url}out/", max_expansion="300kB")
    assert len(stored(s3, bucket, "out/")) <= 3
    assert untar(f"{url}v/", f"{url}out/", max_expansion="500kB").ok
    assert len(stored(s3, bucket, "out/")) == 5
