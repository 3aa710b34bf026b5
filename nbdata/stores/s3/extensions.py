"""Parts of S3 that a store may lack: they are asked for until the store refuses one, and then left out.

Stores that speak S3 know different parts of it. A header or parameter that is only useful to nbdata must not make such
a store unusable.
"""

from __future__ import annotations

import re
from collections.abc import Container

from nbdata.stores.s3.errors import field, says_wrong_bytes

__all__ = ["EXTENSIONS", "may_lack"]

#: The headers and parameters that ask for them, in the order in which they are left out; and what a report says then,
#: if a proof is lost.
EXTENSIONS = {
    "x-amz-checksum-mode": "the store does not tell its checksums (x-amz-checksum-mode): only ETags are compared",
    "encoding-type": "",  # without it, names that XML cannot hold cannot be listed
    "content-md5": "the store takes no Content-MD5, and does not compare what arrives: its answer is compared",
    "if-match": "",  # the version in each answer is compared, too
    "x-amz-copy-source-if-match": "the store copies without a condition (x-amz-copy-source-if-match): a newer version "
    "than the listed one may have been copied",
}
# Codes of a store that does not know something. HEAD has no code.
_UNKNOWN = re.compile(
    "NotImplemented|NotSupported|Unsupported|UnknownParameter|InvalidArgument|InvalidRequest|InvalidParameter|BadRequest",
    re.I,
)
# How messages name the extensions, with and without their prefixes.
_NAMES = re.compile("checksum.?mode|encoding.?type|content.?md5|if.?match", re.I)


def may_lack(
    status: int, data: bytes, method: str, asked: Container[str], known: Container[str]
) -> list[str]:
    """Return the extensions without which a refused request may succeed, the likeliest first.

    `asked` has the names of its headers and parameters; those in `known` are left out already.

    A write is repeated without its digest only if the store says that it does not know that.
    """
    candidates = [name for name in EXTENSIONS if name in asked and name not in known]
    if not candidates or status not in (400, 405, 501) or says_wrong_bytes(data):
        return []
    code, message = field(data, "Code"), field(data, "Message")
    if status == 501 or code == "NotImplemented":
        return candidates
    if code and not _UNKNOWN.search(code):
        return []
    named = {name for name in candidates if any(header.lower() in name for header in _NAMES.findall(message))}
    if method in ("PUT", "POST"):
        return [name for name in candidates if name in named]
    return sorted(candidates, key=lambda name: name not in named)
