"""Find the store and the key for a URL or path."""

from __future__ import annotations

import difflib
import re
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

from nbdata.errors import BadOption, NbdataError, StoreUnavailable
from nbdata.guarded_folders import NamedFolders
from nbdata.operation import Context
from nbdata.paths import is_url
from nbdata.redaction import AZURE_SCHEMES, S3_SCHEMES, redacted
from nbdata.stores.base import Location, Stop, Store

__all__ = ["children", "is_account", "open_place"]

_NO_BUCKET = re.compile(r"""[?#\\%\s\x00-\x1f"<>|^`{}\[\]]""")
# Stores that nbdata.files gives to fsspec under these names with nb before them.
_FOR_FSSPEC = (*S3_SCHEMES, "gs", "gcs", "ais", *AZURE_SCHEMES, "http", "https")
_EXTRA = dict.fromkeys(("sftp", "ssh"), "pip install paramiko")
# The options of fsspec's file systems that name another one, which they read through.
_THROUGH = (
    "fo",
    "target_protocol",
    "remote_protocol",
    "target_options",
    "remote_options",
    "ref_storage_args",
)


def open_place(
    place: str,
    context: Context,
    *,
    stop: Stop | None = None,
    fs: Any = None,
    named: str | None = None,
    opened: NamedFolders | None = None,
) -> Location:
    """Return the store and key of a canonical place.

    A place whose origin the user did not name gets no credentials (see `Context.origins`).

    Parameters
    ----------
    fs : fsspec.AbstractFileSystem, optional
        Used for URLs instead of a store for the URL's protocol.
    named : str, optional
        The folder above the place that the user named: on a disk, nothing is written or deleted through a link below
        it. None: the place itself.
    opened : NamedFolders, optional
        The folders on the disk that the job has opened.

    Raises
    ------
    BadOption
        If the protocol has no store, or the URL no bucket; or if the user did not name the origin, and the store
        cannot be asked without credentials.
    """
    if not context.knows(place):
        context = _anonymous(place, context, given=fs is not None or context.filesystem is not None)
    store: Store
    if not is_url(place):
        from nbdata.stores.local import LocalStore

        disk = LocalStore(umask=context.umask, named=named or place, opened=opened)
        return Location(disk, place.lstrip("/"), place)
    scheme = place.split("://", 1)[0]
    if fs is None and context.filesystem is not None:
        fs = _rebuilt(context.filesystem)
    if fs is None and scheme in S3_SCHEMES:
        from nbdata.stores.s3.config import s3_config
        from nbdata.stores.s3.store import S3Store

        bucket, slash, key = _bucket(place, f"{scheme}://bucket/key")
        if redacted(place) != place:  # keys that could not be sent would look like a bucket
            raise BadOption(
                f"an {scheme}:// URL holds no keys",
                path=redacted(place),
                remedy="Give them with --option key=env:NAME --option secret=env:NAME, or in a profile",
            )
        kind = "obs" if scheme == "obs" else "s3"
        store = S3Store(
            bucket,
            s3_config(kind, context, stop=stop),
            stop=stop,
            renew=lambda refused: s3_config(kind, context, refused=refused, stop=stop),
        )
        return Location(store, key, place if slash else place + "/")
    if fs is None and scheme in ("gs", "gcs"):
        from nbdata.stores.gs.config import gs_config
        from nbdata.stores.gs.store import GsStore

        bucket, slash, key = _bucket(place, "gs://bucket/key")
        return Location(
            GsStore(bucket, gs_config(context, stop=stop), stop=stop), key, place if slash else place + "/"
        )
    if fs is None and scheme == "ais":
        from nbdata.stores.ais.config import ais_config, bucket_of
        from nbdata.stores.ais.store import AisStore

        its_bucket, slash, key = bucket_of(place, context)
        ais = AisStore(its_bucket, ais_config(context), stop=stop)
        return Location(ais, key, place if slash else place + "/")
    if fs is None and scheme in AZURE_SCHEMES:
        from nbdata.stores.az.config import az_config
        from nbdata.stores.az.store import AzStore

        container, slash, key = _bucket(place, f"{scheme}://container/key")
        container, _, host = container.partition("@")
        az = AzStore(container, az_config(host, context, stop=stop), stop=stop)
        return Location(az, key, place if slash else place + "/")
    if fs is None and scheme in ("http", "https"):
        from nbdata.stores.http.config import http_config
        from nbdata.stores.http.store import HttpStore, key_of

        url = place.partition("#")[0]
        store = HttpStore(url, http_config(url, context), stop=stop)
        return Location(store, key_of(url), redacted(url).partition("?")[0])
    from nbdata.stores.fsspec_store import FsspecStore

    if fs is None:
        fs = _filesystem(scheme, place, context)
    store = FsspecStore(fs, named or place, umask=context.umask)
    key = str(fs._strip_protocol(place)).lstrip("/")
    if key.startswith(("http://", "https://")):
        key = place = store.key_of(key)
    if place.endswith("/") and key:
        key = key.rstrip("/") + "/"
    return Location(store, key, redacted(place))


def _anonymous(place: str, context: Context, *, given: bool) -> Context:
    """Return the context for a place whose origin the user did not name, without anything that identifies them."""
    scheme = place.partition("://")[0]
    http = scheme in ("http", "https")
    if given or not (http or scheme in (*S3_SCHEMES, *AZURE_SCHEMES, "gs", "gcs", "ais")):
        raise BadOption(
            "an index leads to another store, which gets none of the credentials of this one",
            path=redacted(place),
            expected="s3, obs, gs, az, ais or http"
            if not given
            else "places of the file system that was given",
            remedy="Name the places themselves",
        )
    bare = context.without_credentials()
    return bare if http else replace(bare, storage_options={"anon": True})


def is_account(place: str) -> bool:
    """Whether a URL is an account, whose `children` are its buckets.

    Examples
    --------
    >>> [is_account(one) for one in ("s3://", "ais://", "ais://@aws", "ais://@aws/", "ais://@aws/bucket", "gs://")]
    [True, True, True, True, False, False]
    """
    scheme, _, rest = place.partition("://")
    if scheme == "ais" and rest.startswith("@"):
        return not rest.partition("/")[2]
    return not rest and scheme in (*S3_SCHEMES, "ais")


def children(place: str, context: Context, limit: int, *, stop: Stop | None = None) -> list[str]:
    """List some places that begin with this URL, no deeper than the next slash. Folders end in a slash.

    Those of an account are its buckets.
    """
    scheme, _, rest = place.partition("://")
    if "/" not in rest and scheme in S3_SCHEMES:
        from nbdata.stores.s3.config import s3_config
        from nbdata.stores.s3.store import S3Store

        service = S3Store("", s3_config("obs" if scheme == "obs" else "s3", context, stop=stop), stop=stop)
        return [f"{scheme}://{bucket.key}" for bucket in service.children(rest, limit)]
    if scheme == "ais":
        from nbdata.stores.ais.config import ais_config, service_of
        from nbdata.stores.ais.store import AisStore

        if (service_found := service_of(place, context)) is not None:
            its, begin, prefix = service_found
            buckets = AisStore(its, ais_config(context), stop=stop).children(prefix, limit)
            return [f"{begin}{bucket.key}" for bucket in buckets]
    folder = place[: place.rindex("/") + 1]
    location = open_place(folder, context, stop=stop)
    found = location.store.children(location.key + place[len(folder) :], limit)
    return [folder + info.key[len(location.key) :] for info in found]


def _bucket(place: str, expected: str) -> tuple[str, str, str]:
    """Split a URL into its bucket, the slash after it (or ''), and the key."""
    bucket, slash, key = place.split("://", 1)[1].partition("/")
    if not bucket:
        raise BadOption(f"{place} names no bucket", expected=expected)
    if bucket.startswith("arn:"):
        raise BadOption(
            "an ARN is no name of a bucket",
            path=redacted(place),
            expected=expected,
            remedy="Name the access point by its alias, which ends in -s3alias, or the bucket itself",
        )
    if ":" in bucket and "@" not in bucket:  # with it, they are keys
        raise BadOption(
            "the address of a server is no part of the URL",
            path=redacted(place),
            expected=expected,
            remedy="Give the server as --option endpoint_url=https://HOST:PORT or in AWS_ENDPOINT_URL",
        )
    if _NO_BUCKET.search(bucket):  # it becomes a part of a host name or of a path
        raise BadOption(
            "this is no name of a bucket",
            path=redacted(place),
            expected="letters, digits and .-_",
            remedy="What follows the bucket begins with a slash",
        )
    return bucket, slash, key


def _filesystem(scheme: str, place: str, context: Context) -> Any:
    import fsspec

    if scheme.startswith("nb") and scheme[2:] in _FOR_FSSPEC:  # it would only come back here
        raise BadOption(
            f"{scheme}:// is how programs that use fsspec name a store of nbdata",
            path=redacted(place),
            remedy=f"Write {scheme[2:]}://",
        )
    if scheme not in fsspec.available_protocols():
        near = difflib.get_close_matches(scheme, [*S3_SCHEMES, "ais", *fsspec.available_protocols()], n=1)
        raise BadOption(
            f"there is no store for {scheme}://",
            remedy=f"Did you mean {near[0]}://?"
            if near
            else "Known are s3, obs, gs, az, ais, http and the protocols of fsspec",
        )
    configured = context.fsspec_conf.get(scheme)
    options = {**(configured if isinstance(configured, dict) else {}), **context.storage_options}
    if _follows_references(scheme, options):
        raise BadOption(
            "an index of references may lead to files of this machine, and take credentials to any host",
            path=redacted(place),
            remedy="If you trust it with both, make the file system with fsspec, and give it as fs=",
        )
    try:
        of_url = _of_url(fsspec.get_filesystem_class(scheme), place)
        if scheme in ("sftp", "ssh"):
            from nbdata.stores.sftp import sftp_files

            return sftp_files(place, {**options, **of_url}, context.env.get("HOME", ""))
        return fsspec.filesystem(scheme, **{**options, **of_url})
    except NbdataError:
        raise
    except ImportError as error:
        raise BadOption(
            f"{scheme}:// needs a package that is not installed",
            remedy=_EXTRA.get(scheme) or str(error).rstrip("."),
        ) from error
    except (TypeError, ValueError) as error:
        raise BadOption(
            f"the storage options do not fit {scheme}://",
            remedy=f"Check their names ({type(error).__name__})",
        ) from error
    except Exception as error:  # some connect at once; a foreign error's text may hold a secret
        raise StoreUnavailable(
            f"{scheme}:// cannot be opened ({type(error).__name__})",
            path=redacted(place),
            remedy="Check the address, the credentials and the network",
        ) from error


def _follows_references(protocol: object, options: Any) -> bool:
    """Whether a file system of fsspec, or one that it reads through, opens the places that an index of another names.

    fsspec opens what such an index (kerchunk's) names with the options of the index itself, also ``file://``.
    """
    if isinstance(protocol, str) and "reference" in (
        part.partition("://")[0] for part in protocol.split("::")
    ):
        return True
    named = options if isinstance(options, dict) else {}
    return any(_follows_references(named[name], named[name]) for name in _THROUGH if name in named)


def _of_url(cls: Any, place: str) -> dict[str, Any]:
    """Return the options in a URL, such as host and user. User and password are always unescaped, unlike in fsspec."""
    options = dict(cls._get_kwargs_from_urls(place))
    parts = urlsplit(place)
    for name, value in (("username", parts.username), ("password", parts.password)):
        if name in options and value is not None:
            options[name] = unquote(value)
    return options


def _rebuilt(data: dict[str, Any]) -> Any:
    """Rebuild a file system from fsspec's ``to_dict``: only for a registered protocol, never by class name."""
    import fsspec

    options = dict(data)
    protocol = options.pop("protocol")
    options.pop("cls", None)
    args = options.pop("args", ())
    name = protocol if isinstance(protocol, str) else protocol[0]
    return fsspec.filesystem(name, *args, **options)
