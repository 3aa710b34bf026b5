"""az:// and abfs://: signatures, verification, and secrets that never appear."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import os
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import quote

import pytest

import nbdata
from nbdata.errors import (
    AccessDenied,
    BadOption,
    ChecksumMismatch,
    NbdataError,
    NotFound,
    SourceChanged,
    StoreUnavailable,
)
from nbdata.operation import Context
from nbdata.stores.az.config import _EMULATED, AzConfig, az_config
from nbdata.stores.base import Location
from nbdata.stores.resolve import open_place
from tests.stores.emulators import azure
from tests.stores.round_trip import there_and_back
from tests.stores.servers import each, ok, serving, status

KEY = _EMULATED["AccountKey"]


def at(url: str = "az://bucket/x", *, env: dict[str, str] | None = None, **options: object) -> Location:
    return open_place(url, Context(cwd="/", env=env or {}, storage_options=options))


def config(host: str = "", *, env: dict[str, str] | None = None, **options: object) -> AzConfig:
    return az_config(host, Context(cwd="/", env=env or {}, storage_options=options))


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory, azurite: None) -> Iterator[str]:
    """A connection string of Azurite with the container ``bucket``."""
    with azure(tmp_path_factory.mktemp("azure")) as port:
        text = f"UseDevelopmentStorage=true;BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1"
        store = at(connection_string=text).store
        store._send("PUT", "", {"restype": "container"}, body=b"", ok=(201,)).read()  # type: ignore[attr-defined]
        yield text


def sas(**fields: str) -> str:
    """Return a shared access signature of the container.

    Source: "Create a service SAS", Azure Storage REST API, 2020-12-06.
    """
    end = (datetime.now(timezone.utc) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    known = {"sp": "rl", "se": end, "sv": "2020-12-06", "sr": "c", "spr": "https,http", **fields}
    lines = [
        known["sp"],
        "",
        known["se"],
        "/blob/devstoreaccount1/bucket",
        "",
        "",
        known["spr"],
        known["sv"],
        known["sr"],
    ]
    text = "\n".join([*lines, *[""] * 7])
    known["sig"] = base64.b64encode(
        hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
    ).decode()
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in known.items())


@pytest.mark.in_ci("agent")
@pytest.mark.parametrize("host", ["inline", "agent"])
def test_a_folder_goes_there_and_back_and_is_verified(
    host: str, emulator: str, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", emulator)
    monkeypatch.setenv("NBDATA_HOST", host)
    pushed, pulled = there_and_back(tree, f"az://bucket/{host}/", tmp_path / "out")
    # The emulator answers no digest of a block, as Azure does.
    assert pushed.notes == ["1 could not be verified: the store returned no checksum"]
    # Azure keeps no checksum of what was sent in blocks.
    assert pulled.notes == ["1 could not be verified: the store has no checksum for them"]


def test_a_shared_access_signature_reads_and_lists_and_may_not_write(emulator: str) -> None:
    owner = at(connection_string=emulator).store
    owner.write("sas/x", io.BytesIO(b"content"), 7)
    endpoint = emulator.partition("BlobEndpoint=")[2]
    for token in (sas(), "?" + sas()):
        store = at(endpoint_url=endpoint, account_name="devstoreaccount1", sas_token=token).store
        assert store.read_bytes("sas/x") == b"content"
        assert [info.key for info in store.list("sas/")] == ["sas/x"]
        with pytest.raises(AccessDenied) as caught:
            store.write("sas/y", io.BytesIO(b"y"), 1)
        assert "sig" not in str(caught.value).replace("sign", "")
    # The same signature in a plain URL.
    assert at(f"{endpoint}/bucket/sas/x?{sas()}").store.read_bytes(_key(endpoint)) == b"content"


def _key(endpoint: str) -> str:
    return "devstoreaccount1/bucket/sas/x"


def test_a_wrong_key_is_denied_and_not_shown(emulator: str) -> None:
    endpoint = emulator.partition("BlobEndpoint=")[2]
    for wrong in (base64.b64encode(b"SECRET" * 5).decode(), "no base64 SECRET"):
        place = at(endpoint_url=endpoint, account_name="devstoreaccount1", account_key=wrong)
        with pytest.raises(AccessDenied) as caught:
            place.store.head("x")
        shown = f"{caught.value} {caught.value.to_dict()} {place!r} {vars(place.store)['_config']!r}"
        assert wrong not in shown
        assert "storage options" in str(caught.value)


def test_a_missing_container_is_named(emulator: str) -> None:
    store = at("az://nosuch/x", connection_string=emulator).store
    for ask in (lambda: list(store.list("")), lambda: store.write("x", io.BytesIO(b"x"), 1)):
        with pytest.raises(NotFound, match="container") as caught:
            ask()
        assert caught.value.details["bucket"] is True


def test_blocks_that_are_not_committed_are_no_object(emulator: str) -> None:
    store = at(connection_string=emulator).store
    upload = store.upload("unfinished", 4)
    upload.part(1, io.BytesIO(b"1234"), 4)
    upload.abort()
    assert list(store.list("unfinished")) == []
    other = store.upload("unfinished", 3)  # not disturbed by the aborted blocks
    other.finish([other.part(1, io.BytesIO(b"new"), 3)])
    assert store.read_bytes("unfinished") == b"new"


def test_the_digest_that_azure_answers_for_a_block_is_told() -> None:
    md5 = hashlib.md5(b"1234")
    seen: list[str] = []
    made = status(201, f"Content-MD5: {base64.b64encode(md5.digest()).decode()}")
    with serving(each(lambda head: made, seen)) as port:
        store = at(endpoint_url=f"http://127.0.0.1:{port}", account_name="a", anon=True).store
        assert store.upload("x", 4).part(1, io.BytesIO(b"1234"), 4) == f'"{md5.hexdigest()}"'
    assert "x-ms-version: 2018-11-09" in seen[0]  # later ones need the client's digest


def test_a_blob_that_arrives_wrong_is_not_made(emulator: str) -> None:
    store = at(connection_string=emulator).store
    store.write("sent", io.BytesIO(b"old"), 3)
    with pytest.raises(ChecksumMismatch, match="not what was sent"):
        store.write("sent", io.BytesIO(b"wrong"), 5, md5=hashlib.md5(b"right").hexdigest())
    assert store.read_bytes("sent") == b"old"
    store.write("sent", io.BytesIO(b"right"), 5, md5=hashlib.md5(b"right").hexdigest())
    assert store.read_bytes("sent") == b"right"


def test_many_blocks_in_any_order_make_the_object(emulator: str) -> None:
    store = at(connection_string=emulator).store
    upload = store.upload("blocks", 30)
    answers = {n: upload.part(n, io.BytesIO(b"%010d" % n), 10) for n in (3, 1, 2)}
    info = upload.finish([answers[n] for n in (1, 2, 3)])
    assert store.read_bytes("blocks") == b"".join(b"%010d" % n for n in (1, 2, 3))
    assert store.head("blocks").etag == info.etag
    store.read("blocks", match=store.write("blocks", io.BytesIO(b"1"), 1)).close()
    with pytest.raises(SourceChanged):
        store.read("blocks", match=info)


def test_a_listing_of_many_pages_is_whole(emulator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = at(connection_string=emulator).store
    monkeypatch.setattr(type(store), "_page", 7)
    names = [f"pages/{n:02}" for n in range(20)]
    for name in names:
        store.write(name, io.BytesIO(b"x"), 1)
    assert [info.key for info in store.list("pages/")] == names
    assert [info.key for info in store.list("pages/", after="pages/12")] == names[13:]


def test_bytes_that_are_not_what_azure_vouches_for_are_refused(tmp_path: Path, inline: None) -> None:
    md5 = base64.b64encode(hashlib.md5(b"right").digest()).decode()

    def answer(head: str) -> bytes:
        if "comp=list" in head:
            return ok(b"<EnumerationResults><Blobs/></EnumerationResults>")
        return ok(b"wrong", f"Content-MD5: {md5}", 'ETag: "0x8D"')

    with serving(each(answer)) as port:
        options = {"endpoint_url": f"http://127.0.0.1:{port}", "account_name": "a", "anon": True}
        with pytest.raises(nbdata.TransferFailed, match="md5"):
            nbdata.pull("az://bucket/x", tmp_path / "out", storage_options=options, quiet=True)


# -- credentials and endpoints --------------------------------------------------------------------


def test_a_url_may_name_the_account() -> None:
    found = config("acct.dfs.core.windows.net", anon=True)
    assert (found.account, found.endpoint) == ("acct", "https://acct.blob.core.windows.net")
    place = at("abfss://cont@acct.dfs.core.windows.net/a/b", anon=True)
    assert (place.store.name, place.key) == ("az://cont", "a/b")
    assert place.place == "abfss://cont@acct.dfs.core.windows.net/a/b"


@pytest.mark.parametrize(
    ("env", "options", "expected"),
    [
        (
            {"AZURE_STORAGE_CONNECTION_STRING": f"AccountName=cs;AccountKey={KEY};EndpointSuffix=core.example"},
            {},
            ("cs", "https://cs.blob.core.example", KEY, ""),
        ),
        (
            {"AZURE_STORAGE_ACCOUNT": "env", "AZURE_STORAGE_KEY": "k"}, {},
            ("env", "https://env.blob.core.windows.net", "k", ""),
        ),
        (
            {"AZURE_STORAGE_ACCOUNT": "env", "AZURE_STORAGE_SAS_TOKEN": "?s=1"}, {},
            ("env", "https://env.blob.core.windows.net", "", "s=1"),
        ),
        (
            {"AZURE_STORAGE_ACCOUNT": "env", "AZURE_STORAGE_KEY": "k"},
            {"account_name": "opt", "sas_token": "s=2"},
            ("opt", "https://opt.blob.core.windows.net", "", "s=2"),
        ),
        (
            {"AZURE_STORAGE_CONNECTION_STRING": f"AccountName=cs;AccountKey={KEY}"},
            {"account_name": "opt", "credential": "key=="},
            ("opt", "https://opt.blob.core.windows.net", "key==", ""),
        ),
        (
            {"AZURE_STORAGE_ACCOUNT": "env", "AZURE_STORAGE_KEY": "k"}, {"anon": "true"},
            ("env", "https://env.blob.core.windows.net", "", ""),
        ),
        (
            {"AZURE_STORAGE_ACCOUNT": "env", "AZURE_STORAGE_SAS_TOKEN": "s=1"}, {"account_name": "ENV"},
            ("ENV", "https://ENV.blob.core.windows.net", "", "s=1"),
        ),
        (  # those of the environment are of the account that it names
            {"AZURE_STORAGE_ACCOUNT": "env", "AZURE_STORAGE_KEY": "k", "AZURE_STORAGE_SAS_TOKEN": "s=1"},
            {"account_name": "opt"},
            ("opt", "https://opt.blob.core.windows.net", "", ""),
        ),
        (  # if it names none, of any, as for the programs of Azure
            {"AZURE_STORAGE_SAS_TOKEN": "s=1"}, {"account_name": "opt"},
            ("opt", "https://opt.blob.core.windows.net", "", "s=1"),
        ),
    ],
)  # fmt: skip
def test_options_win_over_the_environment(
    env: dict[str, str], options: dict[str, object], expected: tuple[str, ...]
) -> None:
    found = config(env=env, **options)
    assert (found.account, found.endpoint, found.key, found.sas) == expected
    assert not any(secret in repr(found) for secret in (KEY, "s=1", "s=2", "key=="))


@pytest.mark.parametrize(
    "options",
    [{}, {"account_nam": "SECRET"}, {"connection_string": "SECRET"}, {"account_name": "a", "credential": 5},
     {"account_name": "a", "endpoint_url": "ftp://SECRET"}, {"account_name": "a", "endpoint_url": "http://u:SECRET@h"}],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(BadOption) as caught:
        config(**options)
    assert "SECRET" not in str(caught.value)


def test_no_credentials_say_what_would_do(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AZURE_STORAGE_ACCOUNT": "a"}
    with pytest.raises(AccessDenied, match="azure-identity"):
        at(env=env).store.head("x")


@pytest.mark.parametrize(
    ("number", "code", "kind"),
    [
        (403, "AuthenticationFailed", AccessDenied),
        (409, "PublicAccessNotPermitted", AccessDenied),
        (404, "BlobNotFound", NotFound),
        (412, "ConditionNotMet", SourceChanged),
        (503, "ServerBusy", StoreUnavailable),
        (400, "InvalidHeaderValue", NbdataError),
    ],
)
def test_each_response_gives_its_error(number: int, code: str, kind: type[NbdataError]) -> None:
    with serving(each(lambda head: status(number, f"x-ms-error-code: {code}"))) as port:
        store = at(endpoint_url=f"http://127.0.0.1:{port}", account_name="a", anon=True).store
        with pytest.raises(kind) as caught:
            store.read_bytes("x")
    assert caught.value.details["code"] == code
    assert bool(caught.value.details.get("retry")) is (kind is StoreUnavailable)


def test_folders_of_a_data_lake_and_names_that_xml_cannot_say_are_listed_right() -> None:
    page = (
        b"\xef\xbb\xbf<?xml version='1.0'?><EnumerationResults><Blobs>"
        b"<Blob><Name>d</Name><Properties><ResourceType>directory</ResourceType></Properties></Blob>"
        b"<Blob><Name Encoded='true'>d/%EF%BF%BE</Name><Properties><Content-Length>3</Content-Length>"
        b"<Etag>0x8D</Etag></Properties></Blob></Blobs><NextMarker/></EnumerationResults>"
    )
    with serving(each(lambda head: ok(page))) as port:
        store = at(endpoint_url=f"http://127.0.0.1:{port}", account_name="a", anon=True).store
        assert [(i.key, i.size, i.etag) for i in store.list("")] == [("d/\ufffe", 3, '"0x8D"')]


@pytest.mark.parametrize("size", [2, 10])
def test_a_listing_of_a_data_lake_is_resumed_at_its_place(size: int) -> None:
    kinds = {"a": b"directory", "a/1": b"file", "a/2": b"file", "a-b": b"file", "b": b"file"}

    def answer(head: str) -> bytes:
        marker = re.search("marker=([0-9]+)", head)
        start = int(marker[1]) if marker else 0
        blobs = b"".join(
            b"<Blob><Name>%b</Name><Properties><Content-Length>1</Content-Length>"
            b"<ResourceType>%b</ResourceType></Properties></Blob>" % (key.encode(), kind)
            for key, kind in list(kinds.items())[start : start + size]
        )
        more = b"%d" % (start + size) if start + size < len(kinds) else b""
        return ok(
            b"<EnumerationResults><Blobs>%b</Blobs><NextMarker>%b</NextMarker></EnumerationResults>"
            % (blobs, more)
        )

    keys = ["a/1", "a/2", "a-b", "b"]
    with serving(each(answer)) as port:
        store = at(endpoint_url=f"http://127.0.0.1:{port}", account_name="a", anon=True).store
        assert [info.key for info in store.list("")] == keys
        for number, key in enumerate(keys):
            assert [info.key for info in store.list("", after=key)] == keys[number + 1 :]
        with pytest.raises(SourceChanged):  # where to resume is not known
            list(store.list("", after="a/3"))


@pytest.mark.in_ci("<EnumerationResults><NextMarker>m</NextMarker></EnumerationResults>")
@pytest.mark.parametrize(
    "page", [b"<html>", b"<EnumerationResults><NextMarker>m</NextMarker></EnumerationResults>"]
)
def test_a_listing_that_is_none_or_repeats_itself_is_an_error(page: bytes) -> None:
    asked = list[str]()
    with (
        serving(each(lambda head: (asked.append(head), ok(page))[1])) as port,
        pytest.raises(StoreUnavailable),
    ):
        list(at(endpoint_url=f"http://127.0.0.1:{port}", account_name="a", anon=True).store.list(""))
    assert len(asked) < 5
