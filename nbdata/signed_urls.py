"""Which parts of a URL's query only sign it: a new signature is no other object."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote_plus

__all__ = ["without_signature"]


class _Form(NamedTuple):
    """One form of signed URLs.

    Attributes
    ----------
    marks : frozenset of str
        Parameters that all are there, in lower case, if a query has this form.
    signs : re.Pattern
        The names of all parameters that only sign, in lower case.
    """

    marks: frozenset[str]
    signs: re.Pattern[str]


def _form(marks: str, signs: str) -> _Form:
    return _Form(frozenset(marks.split()), re.compile(signs))


# The names are those of each store's documentation of signed URLs. Words such as `expires` or `policy` mean something
# else elsewhere, so they count only beside the mark of a form. `x-…-process` chooses other bytes (Alibaba, Volcano).
_FORMS = (
    _form("x-amz-signature", r"x-amz-.*"),  # AWS, version 4
    _form(
        "awsaccesskeyid signature", r"awsaccesskeyid|signature|expires|x-amz-security-token"
    ),  # AWS, version 2; OBS
    _form("accesskeyid signature", r"accesskeyid|signature|expires|x-obs-security-token"),  # OBS
    _form("x-obs-signature", r"x-obs-.*"),
    _form("x-goog-signature", r"x-goog-.*"),  # Google
    _form("googleaccessid signature", r"googleaccessid|signature|expires"),
    _form("sig sv", r"s(ig|e|v|p|r|t|i|s|rt|pr|ip|dd|cid)|sk(oid|tid|t|e|s|v)|s[as]oid|suoid|ses"),  # Azure
    _form("ossaccesskeyid signature", r"ossaccesskeyid|signature|expires|security-token"),  # Alibaba
    _form("x-oss-signature", r"x-oss-(?!process).*"),
    _form("q-signature", r"q-.*|x-cos-security-token"),  # Tencent
    _form("x-tos-signature", r"x-tos-(?!process).*"),  # Volcano
    _form("key-pair-id signature", r"key-pair-id|signature|expires|policy|hash-algorithm"),  # CloudFront
)


def without_signature(place: str) -> str:
    """Return a place without what only signs its URL; any other place as it is.

    Examples
    --------
    >>> without_signature("https://h/x.bin?version=2&X-Amz-Date=1&X-Amz-Signature=abc")
    'https://h/x.bin?version=2'
    >>> without_signature("https://h/x.bin?expires=soon")
    'https://h/x.bin?expires=soon'
    """
    if not place.startswith(("http://", "https://")) or "?" not in place:
        return place
    path, _, query = place.partition("?")
    parts = query.split("&")
    names = [unquote_plus(part.partition("=")[0]).lower() for part in parts]
    forms = [form for form in _FORMS if form.marks <= set(names)]
    if not forms:
        return place
    left = [
        part
        for part, name in zip(parts, names, strict=True)
        if not any(form.signs.fullmatch(name) for form in forms)
    ]
    return f"{path}?{'&'.join(left)}" if left else path
