"""The names of files: the path that a file system uses for a URL, and the URL of a path."""

from __future__ import annotations

from nbdata.errors import BadOption
from nbdata.redaction import AZURE_SCHEMES, S3_SCHEMES

__all__ = ["PROTOCOLS", "STORES", "Folders", "parts_of", "path_of", "store_url", "url_of"]

#: The protocols that nbdata has its own stores for. For all others it asks fsspec itself.
STORES = (*S3_SCHEMES, "gs", "gcs", "ais", *AZURE_SCHEMES, "http", "https")
#: The names by which fsspec always gets to nbdata, as in ``nbs3://bucket/file``. They are letters and digits only,
#: because xarray takes a URL with any other name for a path on the disk.
PROTOCOLS = tuple(f"nb{store}" for store in STORES)

# Most bytes of memory for the names of folders, each of which takes some beside its characters: a key of 8 KB may have
# 4,000 folders.
_FOLDERS, _NAME = 512 << 20, 100


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


class Folders:
    """The names of all folders above files, below one path.

    Attributes
    ----------
    names : set of str
    """

    def __init__(self, path: str) -> None:
        self.names = set[str]()
        self._path, self._held = path, 0

    def add_above(self, name: str) -> None:
        """Add the folders above a file or folder.

        Raises
        ------
        BadOption
            If all names together take too much memory.
        """
        parent = name.rpartition("/")[0]
        while len(parent) > len(self._path) and parent not in self.names:
            self.names.add(parent)
            self._held += len(parent) + _NAME
            parent = parent.rpartition("/")[0]
        if self._held > _FOLDERS:
            raise BadOption(
                "the names of all folders above the files take too much memory",
                path=self._path,
                expected=f"at most {_FOLDERS >> 20} MiB",
                remedy="List the files alone, or with os.walk of nbdata.shift, which takes one folder at a time",
            )
