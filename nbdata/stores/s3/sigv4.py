"""Sign S3 requests with AWS Signature Version 4.

Follows "Authenticating Requests (AWS Signature Version 4)" of the Amazon S3 API reference. This is code of its own
because botocore's signer takes longer than the request it signs. Tests compare the two.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from nbdata.redaction import remember

__all__ = ["EMPTY", "UNSIGNED", "Identity", "Signer", "quote_path", "quote_query"]

UNSIGNED = "UNSIGNED-PAYLOAD"
EMPTY = hashlib.sha256(b"").hexdigest()
_BLANK = " \t"
_BLANKS = re.compile(f"[{_BLANK}]+")
_QUOTES = "'\""


@dataclass(frozen=True)
class Identity:
    """Keys to sign with, which no repr shows. `source` is their origin, for error messages.

    `expires` is in seconds since the epoch, or None.
    """

    key: str = field(repr=False)
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)
    source: str = "storage options"
    expires: float | None = None

    def __post_init__(self) -> None:
        remember(self.key, self.secret, self.token)

    @property
    def copied_along(self) -> str:
        """Describe a copying mistake in a key without showing the key; '' if there is none."""
        named = {"access key": self.key, "secret key": self.secret, "session token": self.token}
        for name, value in named.items():
            if value != value.strip():
                at = "start" if value != value.lstrip() else "end"
                what = "blank" if value.strip(" ") == value.strip() else "line break or another blank"
                return f"the {name} has a {what} at its {at}"
            if any(char.isspace() for char in value):
                return f"the {name} has a blank or a line break in it"
            if value and (value[0] in _QUOTES or value[-1] in _QUOTES):  # %env keeps them, unlike a shell
                return f"the {name} has a quotation mark at its {'start' if value[0] in _QUOTES else 'end'}"
        return ""


def quote_path(key: str) -> str:
    """Escape a key for a request target: all but unreserved characters and slashes."""
    return quote(key.encode("utf-8", "surrogatepass"), safe="/-_.~")


def quote_query(query: Mapping[str, str]) -> str:
    """Write a query as it is signed and sent: sorted names, and all but unreserved characters escaped."""
    return "&".join(
        f"{quote(name, safe='-_.~')}={quote(value.encode('utf-8', 'surrogatepass'), safe='-_.~')}"
        for name, value in sorted(query.items())
    )


class Signer:
    """Signs requests for one identity, region and host. Keeps the derived key for its day."""

    def __init__(self, identity: Identity, region: str, host: str) -> None:
        self._identity, self._region, self._host = identity, region, host
        self._derived = ("", b"")  # day and key in one tuple, so that threads see both or neither

    def headers(
        self,
        method: str,
        path: str,
        query: str,
        extra: Mapping[str, str],
        payload: str,
        now: float | None = None,
    ) -> dict[str, str]:
        """Return all headers of a request: `extra` (names in lower case) and the signature over them.

        Parameters
        ----------
        path, query : str
            Escaped, as they are sent.
        payload : str
            SHA-256 of the body in hex, or `UNSIGNED`.
        now : float, optional
            Seconds since the epoch (None: the clock).
        """
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        day = stamp[:8]
        derived_for, key = self._derived
        if day != derived_for:
            key = ("AWS4" + self._identity.secret).encode()
            for part in (day, self._region, "s3", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._derived = (day, key)
        headers = {"host": self._host, "x-amz-content-sha256": payload, "x-amz-date": stamp, **extra}
        if self._identity.token:
            headers["x-amz-security-token"] = self._identity.token
        names = sorted(headers)
        signed = ";".join(names)
        # A run of blanks counts as one ("Trim" of the canonical request); only metadata has any. Only ASCII blanks
        # count: bytes of UTF-8 may look like other blanks.
        lines = "\n".join(f"{name}:{_BLANKS.sub(' ', headers[name].strip(_BLANK))}" for name in names)
        request = f"{method}\n{path}\n{query}\n{lines}\n\n{signed}\n{payload}"
        scope = f"{day}/{self._region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode('latin-1')).hexdigest()}"
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._identity.key}/{scope}, "
            f"SignedHeaders={signed}, Signature={signature}"
        )
        return headers
