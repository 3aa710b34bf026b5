"""Places as users, logs and records may see them."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from nbdata.paths import is_url

__all__ = ["AZURE_SCHEMES", "S3_SCHEMES", "redacted"]

#: Protocols of S3, in whose URLs no password and no query can be: "@" and "?" are of the key.
S3_SCHEMES = ("s3", "s3a", "obs")
#: Protocols of Azure; what stands before "@" is the container.
AZURE_SCHEMES = ("az", "abfs", "abfss")
# Others of which the same is true.
_PLAIN = (*S3_SCHEMES, "gs", "gcs", *AZURE_SCHEMES)


def redacted(place: str) -> str:
    """A place as users, logs and records may see it: no password, and no query, which may be a signature."""
    if not is_url(place):
        return place
    scheme, rest = place.split("://", 1)
    if scheme in _PLAIN or ("@" not in rest and "?" not in rest):
        return place
    parts = urlsplit(place)
    netloc = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, netloc, parts.path, "…" if parts.query else "", ""))
