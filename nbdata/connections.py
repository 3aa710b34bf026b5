"""Connections: an endpoint and credentials under a name, kept in a file that only this user can read.

Every verb takes one by ``--option connection=NAME``. `connected` alone turns a name into storage options, in the
process of the user, so an agent or a worker needs no file of connections. The keys of a connection go to its own
endpoint or server, whatever the environment, fsspec's configuration, or the URLs of the command say.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nbdata.disk import disk_error
from nbdata.errors import AccessDenied, BadOption, NotFound, UnsafeMember
from nbdata.lock_files import file_lock
from nbdata.origins import origin_of
from nbdata.own_files import folder_of, new_record, remove, taken, through_no_link, write_record
from nbdata.paths import is_url
from nbdata.redaction import Hidden, redacted, remember_options
from nbdata.runtime import runtime_folder

__all__ = ["KINDS", "Connection", "connected", "forget", "keep", "kept"]

#: The protocols of each kind of connection, and the options that it may have.
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "s3": (
        ("s3", "s3a"),
        ("endpoint_url", "region", "addressing_style", "key", "secret", "token", "profile", "anon"),
    ),
    "obs": (("obs",), ("endpoint_url", "region", "addressing_style", "key", "secret", "token", "anon")),
    "gs": (("gs", "gcs"), ("token", "project", "anon")),
    "az": (("az", "abfs", "abfss"), ("account_name", "account_key", "sas_token", "anon")),
    "http": (("http", "https"), ("username", "password", "token")),
    "sftp": (("sftp", "ssh"), ("username", "password", "key_filename", "passphrase")),
}
# Kinds that have no server but the one in their options.
_WITH_ENDPOINT = ("s3", "obs")
# What decides which server gets the keys: nothing beside a connection may.
_WHERE = ("endpoint_url", "account_host", "account_name", "connection_string", "host", "port", "sock")
_GOOGLE = "https://storage.googleapis.com"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE = "connections.json"
# Most connections, characters of a value, and bytes of the file.
_MOST, _LONGEST, _LARGE = 100, 8192, 1 << 20
_OTHERS = 0o077


@dataclass(frozen=True)
class Connection:
    """A way to a store, under a name.

    Attributes
    ----------
    name : str
    kind : str
        One of `KINDS`.
    place : str
        The URL where it begins: a bucket, ``s3://`` for all buckets of an account, or a folder of a web server.
    options : dict
        Storage options by their fsspec names; they may be secret.

    Raises
    ------
    BadOption
        If one of these makes no sense.
    """

    name: str
    kind: str
    place: str
    options: dict[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        remember_options(self.options)
        if not _NAME.fullmatch(self.name):
            raise BadOption(
                f"{self.name[:64]!r} is no name for a connection", expected="letters, digits, dots, - and _"
            )
        if self.kind not in KINDS:
            raise BadOption(f"there is no kind {self.kind!r} of connection", expected=", ".join(KINDS))
        schemes, known = KINDS[self.kind]
        if not is_url(self.place) or self.place.partition("://")[0] not in schemes:
            raise BadOption(
                f"the connection {self.name} has no URL to begin with",
                expected=f"such as {schemes[0]}://bucket/",
            )
        if redacted(self.place) != self.place:
            raise BadOption("a URL with a password or a signature is not kept", path=redacted(self.place))
        for option, value in self.options.items():
            if option not in known:
                raise BadOption(
                    f"a connection of the kind {self.kind} has no {option}", expected=", ".join(known)
                )
            if not isinstance(value, str) or len(value) > _LONGEST or value.startswith("env:"):
                raise BadOption(f"{option} of the connection {self.name} is no text, or too long")
        if self.kind in _WITH_ENDPOINT and not self.endpoint.startswith(("https://", "http://")):
            raise BadOption(
                f"the connection {self.name} has no endpoint", expected="https://host or http://host:port"
            )
        if redacted(self.endpoint) != self.endpoint:
            raise BadOption("an endpoint holds no password", path=redacted(self.endpoint))

    @property
    def endpoint(self) -> str:
        """The address of the server; empty if the kind decides it."""
        return str(self.options.get("endpoint_url", ""))

    @property
    def given(self) -> dict[str, Any]:
        """The storage options that a store gets. They say which server it is, so nothing else decides that.

        Without keys of its own, a connection to an S3-like server or to Azure is anonymous: those of the environment
        are for another server. One to Google has the login of the environment, which goes to Google alone.

        Raises
        ------
        BadOption
            If nothing says which account it is for.
        """
        if self.kind == "gs":
            return {"endpoint_url": _GOOGLE, **self.options}
        if self.kind == "az":
            has_key = {"account_key", "sas_token", "anon"} & set(self.options)
            anon = {} if has_key else {"anon": "true"}
            return {"endpoint_url": f"https://{self._account_host}", **anon, **self.options}
        keys = {"key", "secret", "token", "profile", "anon"}
        if self.kind in _WITH_ENDPOINT and not keys & set(self.options):
            return {"anon": "true", **self.options}
        return dict(self.options)

    @property
    def _account_host(self) -> str:
        """The host of the account of Azure."""
        host = origin_of(self.place).partition("://")[2]
        account = str(self.options.get("account_name", ""))
        if not host and not account:
            raise BadOption(f"the connection {self.name} has no account", expected="account_name")
        return host or f"{account}.blob.core.windows.net"

    def refuse_other(self, place: str) -> None:
        """Raise BadOption if a URL is of another kind of store, or leads to another server."""
        schemes = KINDS[self.kind][0]
        if place.partition("://")[0].lower() not in schemes:
            raise BadOption(
                f"the connection {self.name} is for {schemes[0]}://, and its keys would go elsewhere",
                path=redacted(place),
                remedy="Leave it out, or give it by --target-option if the target is its store",
            )
        if self.kind == "sftp" and _server_of(place) != _server_of(self.place):
            raise BadOption(
                f"the connection {self.name} is for another server",
                path=redacted(place),
                expected=redacted(self.place),
            )
        own = {"http": origin_of(self.place), "az": ""}.get(self.kind)
        if own == "":
            own = f"az://{self._account_host}"
        if own is not None and origin_of(place) not in (own, "az://"):
            raise BadOption(
                f"the connection {self.name} is for another server", path=redacted(place), expected=own
            )

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, secrets included: for the file alone."""
        return Hidden({"name": self.name, "kind": self.kind, "place": self.place, "options": self.options})


def _server_of(place: str) -> str:
    """Return host and port of a URL of SSH, the same for each way to write them."""
    return origin_of(place).partition("://")[2].lower().removesuffix(":22")


def connected(
    options: Mapping[str, Any], places: Iterable[str], state_dir: str
) -> tuple[dict[str, Any], Connection | None]:
    """Return storage options with those of the connection that they name, and that connection.

    Options beside ``connection`` go before its own.

    Parameters
    ----------
    options : dict
    places : iterable of str
        The URLs whose stores get the options.
    state_dir : str
        The folder of the file of connections.

    Raises
    ------
    NotFound
        If there is no such connection.
    BadOption
        If one of the places is in another kind of store, or at another server; or if there is none.
    """
    name = options.get("connection")
    if name is None:
        return dict(options), None
    all_kept = kept(state_dir)
    found = next((one for one in all_kept if one.name == name), None)
    if found is None:
        known = ", ".join(one.name for one in all_kept)
        raise NotFound(
            f"there is no connection {str(name)[:64]!r}",
            remedy=f"There are {known}" if known else "Make one in the panel of JupyterLab",
        )
    urls = list(places)
    for url in urls:
        found.refuse_other(url)
    if not urls:
        schemes = KINDS[found.kind][0]
        raise BadOption(
            f"the connection {name} is for {schemes[0]}://, and no place here is",
            remedy="Leave it out; it is not given to what a list on the disk names",
        )
    others = {key: value for key, value in options.items() if key != "connection"}
    for where in _WHERE:
        if where in others:
            raise BadOption(f"the connection {name} has a server of its own", remedy=f"Leave out {where}")
    return {**found.given, **others}, found


def kept(state_dir: str) -> list[Connection]:
    """Return all connections, by name.

    Raises
    ------
    AccessDenied
        If others can read their file, or it is another user's: its keys are no secret, or somebody else's.
    UnsafeMember
        If anything but a file has its place, such as a link.
    """
    path = os.path.join(state_dir, _FILE)
    try:
        with open(path, "rb", opener=through_no_link) as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
                raise AccessDenied(
                    "others can read the file of connections, or have made it",
                    path=path,
                    expected=f"a file of user {os.geteuid()} with the mode 600",
                    remedy=f"chmod 600 {path}, and change the keys in it",
                )
            data = json.loads(file.read(_LARGE))["connections"]
        found = [
            Connection(one["name"], one["kind"], one["place"], dict(one["options"])) for one in data[:_MOST]
        ]
    except FileNotFoundError:
        return []
    except AccessDenied:
        raise
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise UnsafeMember(
            "the file of connections is not as nbdata wrote it", path=path, remedy="Move it away"
        ) from error
    except OSError as error:
        raise taken(path) or disk_error(error, path) from error
    return sorted(found, key=lambda one: one.name)


def keep(state_dir: str, connection: Connection) -> None:
    """Keep a connection, in the place of the one of its name.

    Raises
    ------
    AccessDenied
        If others could read it: some disks have one mode for everything.
    BadOption
        If there are too many.
    """
    with file_lock(_lock()):
        others = [one for one in kept(state_dir) if one.name != connection.name]
        if len(others) >= _MOST:
            raise BadOption(f"there are {_MOST} connections already", remedy="Remove one first")
        _refuse_open_disk(state_dir)
        _write(state_dir, [*others, connection])


def forget(state_dir: str, name: str) -> None:
    """Remove a connection; NotFound if there is none of that name."""
    with file_lock(_lock()):
        all_kept = kept(state_dir)
        others = [one for one in all_kept if one.name != name]
        if len(others) == len(all_kept):
            raise NotFound(f"there is no connection {name[:64]!r}")
        _write(state_dir, others)


def _lock() -> str:
    return os.path.join(runtime_folder(), "connections.lock")


def _write(state_dir: str, connections: list[Connection]) -> None:
    data = json.dumps({"connections": [one.to_dict() for one in connections]}, indent=1).encode()
    write_record(os.path.join(state_dir, _FILE), [data])


def _refuse_open_disk(state_dir: str) -> None:
    """Raise AccessDenied if a private file in this folder is not private."""
    probe = secrets.token_hex(12)
    with folder_of(os.path.join(state_dir, _FILE), make=True) as (at, _):
        fd = new_record(probe, at)
        try:
            mode = os.fstat(fd).st_mode
        finally:
            os.close(fd)
            remove(probe, at=at)
    if stat.S_IMODE(mode) & _OTHERS:
        raise AccessDenied(
            "others can read every file on this disk, so no keys are kept on it",
            path=state_dir,
            remedy="Name a folder on another disk by NBDATA_STATE_DIR",
        )
