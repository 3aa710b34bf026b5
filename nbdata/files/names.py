"""The names of files: the path that a file system uses for a URL, and the URL of a path."""

from __future__ import annotations

from nbdata.redaction import AZURE_SCHEMES, S3_SCHEMES

__all__ = ["PROTOCOLS", "STORES", "add_folders", "parts_of", "path_of", "store_url", "url_of"]

#: The protocols that nbdata has its own stores for. For all others it asks fsspec itself.
STORES = (*S3_SCHEMES, "gs", "gcs", "ais", *AZURE_SCHEMES, "http", "https")
#: The names by which fsspec always gets to nbdata, as in ``nbs3://bucket/file``. They are letters and digits only,
#: because xarray takes a URL with any other name for a path on the disk.
PROTOCOLS = tuple(f"nb{store}" for store in STORES)


def path_of(text: str) -> str:
    """Return the path that a file system uses for a path or URL; on web servers that is the whole URL.

    Examples
    --------
    >>> [path_of(one) for one in ("s3://bucket/file", "nbs3://bucket/file", "nbdata::s3://bucket/file", "bucket/file/")]
    ['bucket/file', 'bucket/file', 'bucket/file', 'bucket/file']
    >>> path_of("nbhttps://server/file")
    'https://server/file'
    """
    scheme, found, rest = text.partition("://")
    if found and scheme.startswith("nbdata::"):
        return path_of(text.removeprefix("nbdata::"))
    if found and scheme in PROTOCOLS:
        return path_of(store_url(text))
    if found and scheme.lower() not in ("http", "https") and scheme.replace("+", "").isalnum():
        return path_of(rest) if scheme == "nbdata" else rest.rstrip("/")
    return text.rstrip("/")


def store_url(url: str) -> str:
    """Return the URL in the store that ``nbs3://bucket/file`` or its like means, and any other URL as it is."""
    return url.removeprefix("nb") if url.partition("://")[0] in PROTOCOLS else url


def parts_of(url: str) -> tuple[str, str, str]:
    """Split a URL: the scheme with ``://``, the bucket or server, and the rest from its slash on.

    Examples
    --------
    >>> parts_of("s3://bucket/folder/file"), parts_of("ais://@aws/bucket/file")
    (('s3://', 'bucket', '/folder/file'), ('ais://', '@aws/bucket', '/file'))
    """
    scheme, _, rest = url.partition("://")
    root, slash, below = rest.partition("/")
    if scheme == "ais" and root.startswith("@"):  # whose bucket it is comes before the bucket
        name, slash, below = below.partition("/")
        root = f"{root}/{name}" if name else root
    return f"{scheme}://", root, slash + below


def url_of(protocol: str, path: str) -> str:
    """Return the URL of a path in a file system that fsspec has under this protocol."""
    if "://" not in path:
        return f"{protocol}://{path}"
    return f"nb{path}" if protocol in PROTOCOLS else path


def add_folders(folders: set[str], name: str, path: str) -> None:
    """Add the folders of a file below a path."""
    parent = name.rpartition("/")[0]
    while len(parent) > len(path) and parent not in folders:
        folders.add(parent)
        parent = parent.rpartition("/")[0]
