"""Removes secrets and control characters from places, texts, data and errors before they are shown.

First, secrets are not written at all: options and environments have no repr, and `redacted` shows places. Below that
are two nets, through which every error, log and report goes (`scrub`). One net cuts known secrets out of every text:
values of secret options, variables and credentials, which `remember` keeps in the memory of this process only. The
other cuts out text that looks like a secret: signatures, tokens, passwords of URLs.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from io import TextIOBase
from types import TracebackType
from typing import Any, TextIO
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit, urlunsplit

from nbdata.threads import ForkLock

__all__ = [
    "AZURE_SCHEMES",
    "S3_SCHEMES",
    "Hidden",
    "ScrubbedStream",
    "frames_leak",
    "is_secret_name",
    "printable",
    "redacted",
    "remember",
    "remember_options",
    "scrub",
    "scrub_data",
]

#: Protocols of S3. Their URLs have no password and no query: "@" and "?" belong to the key.
S3_SCHEMES = ("s3", "s3a", "obs")
#: Protocols of Azure; the text before "@" is the container.
AZURE_SCHEMES = ("az", "abfs", "abfss")
_BUCKET_SCHEMES = (*S3_SCHEMES, "gs", "gcs", "ais")

_MARK = "…"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# Shorter values are not cut out: they occur in too many harmless words.
_SHORTEST = 8
# The same for values of a query whose parameter has any name.
_SHORTEST_UNNAMED = 16
# Most values that are remembered, the newest; a long-lived process renews tokens again and again.
_KEPT = 512

_SECRET_NAME = re.compile(
    r"secret|token|passw|passphrase|pwd|credential|signature|authorization|cookie|connection_string"
    r"|(^|[_-])(key|sas|sig|auth)($|[_-])|ssecustomerkey$|^(username|keyid|accesskeyid|awsaccesskeyid|googleaccessid)$",
    re.IGNORECASE,
)
_NO_SECRET_NAME = re.compile(
    r"_(file|filename|path|dir|uri|url|endpoint)$|^google_application_credentials$", re.IGNORECASE
)
_PARAMETERS = (
    r"(?:x-(?:amz|goog|oss|obs)-)(?:signature|credential|security-token)"
    r"|signature|sig|awsaccesskeyid|googleaccessid|ossaccesskeyid|security-token|access_token"
)
# Per pattern: a text (lower case) without which it is not tried, the pattern, and its replacement.
_LOOKS = (
    # in a query, a signed header or a form
    (
        "=",
        re.compile(rf"(?<![\w-])({_PARAMETERS})=(?!{_MARK})[^&\s\"'<>#,;]+", re.IGNORECASE),
        rf"\1={_MARK}",
    ),
    (
        "authorization",
        re.compile(
            r"\b((?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?)(?![\s\"'…])[^\r\n\"']+", re.IGNORECASE
        ),
        rf"\1{_MARK}",
    ),
    ("bearer", re.compile(r"\b(bearer)\s+[\w+/=.~-]{16,}", re.IGNORECASE), rf"\1 {_MARK}"),
    ("basic", re.compile(r"\b(basic)\s+[\w+/=.~-]{16,}", re.IGNORECASE), rf"\1 {_MARK}"),
    # Each takes time with the length of the text, not with its square: nothing before "://" is looked for, and what may
    # stand in a password is bounded.
    # user:password@ of a URL, except these very words, which documentation uses; and a token in the user's place
    (
        "://",
        re.compile(
            r"((?<=[a-z0-9+.-])://)(?!user:password@)[^\s/?#@\"'<>:]*:[^\s/?#@\"'<>]*@", re.IGNORECASE
        ),
        r"\1",
    ),
    # the same with a "/", "?" or "#" in the password, which should have been escaped; behind a port it is a path
    (
        "://",
        re.compile(
            r"((?<=[a-z0-9+.-])://)(?!user:password@|arn:)[^\s/?#@\"'<>:\[]*:(?!\d*[/?#])[^\s@\"'<>]{0,4096}@",
            re.IGNORECASE,
        ),
        r"\1",
    ),
    ("://", re.compile(r"(\b(?:https?|ftps?)://)(?!user:password@)[^\s/?#@\"'<>]+@", re.IGNORECASE), r"\1"),
    ("akia", re.compile(r"\bAKIA[A-Z0-9]{16}\b"), _MARK),
    ("asia", re.compile(r"\bASIA[A-Z0-9]{16}\b"), _MARK),
)

_known: dict[str, None] = {}
_lock = ForkLock()
_longest_first: tuple[str, ...] = ()


# -- places -------------------------------------------------------------------------------------


def redacted(place: str) -> str:
    """Return a place that may be shown: without a password, and without a query, which may be a signature."""
    if not _URL.match(place):
        return place
    scheme, _, rest = place.partition("://")
    if "@" not in rest and "?" not in rest:
        return place
    if scheme.lower() in AZURE_SCHEMES:
        return place
    if _has_odd_password(scheme, rest):
        rest = rest.rpartition("@")[2]
    if scheme.lower() in _BUCKET_SCHEMES:
        bucket, slash, key = rest.partition("/")
        if scheme.lower() == "ais" and bucket.startswith("@") and "@" not in bucket[1:]:
            return place  # whose bucket it is
        return f"{scheme}://{bucket.rpartition('@')[2]}{slash}{key}"
    try:
        parts = urlsplit(f"{scheme}://{rest}")
    except ValueError:  # brackets without an address
        return f"{scheme}://{_MARK}"
    netloc = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, netloc, parts.path, _MARK if parts.query else "", ""))


def _has_odd_password(scheme: str, rest: str) -> bool:
    """True if the password of a URL has a "/", "?" or "#", which should have been escaped: `rest` follows ``://``.

    Half of the secret keys of AWS have a slash. A bucket has no colon, unless it is an ARN; a host has one before its
    port.
    """
    in_bucket = scheme.lower() in _BUCKET_SCHEMES
    begin = re.split("/" if in_bucket else "[/?#]", rest, maxsplit=1)[0]
    _, colon, word = begin.partition(":")
    if not colon or "@" in begin or "@" not in rest or begin.startswith(("arn:", "[")):
        return False
    return in_bucket or not (word.isdigit() or not word)


# -- remembered secrets -------------------------------------------------------------------------


def is_secret_name(name: str) -> bool:
    """True if an option, a variable or a header of this name holds a secret."""
    return bool(_SECRET_NAME.search(name)) and not _NO_SECRET_NAME.search(name)


def remember(*values: str) -> None:
    """Cut these values out of every text from now on, also as URLs and JSON encode them."""
    global _known, _longest_first
    forms = [form for value in values for form in _forms(value) if len(form) >= _SHORTEST]
    if all(form in _known for form in forms):
        return
    with _lock:
        kept = [form for form in _known if form not in forms]
        known = dict.fromkeys((kept + forms)[-_KEPT:])
        _longest_first = tuple(sorted(known, key=len, reverse=True))
        # Last: another thread or a forked child that finds a form here relies on its being cut out.
        _known = known


def remember_options(options: Mapping[str, Any] | None) -> None:
    """Remember the secrets among options, variables or headers, by their names, and secrets in URLs among them."""
    if options:
        remember(*_secrets_in(options, ""))


def secret_options(options: Mapping[str, Any]) -> list[str]:
    """Return the names of the options that hold a secret; one that names a variable (``env:NAME``) holds none."""
    return [
        name
        for name, value in options.items()
        if any(secret and not secret.startswith("env:") for secret in _secrets_in(value, name))
    ]


def _secrets_in(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _secrets_in(one, str(key))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _secrets_in(one, name)
    elif isinstance(value, str):
        if is_secret_name(name):
            yield value
            yield value.partition(" ")[2]  # "Bearer …"
            # "AccountName=…;AccountKey=…" of a connection string, "sv=…&sig=…" of a shared access signature
            for part in re.split("[;&]", value):
                inner, _, one = part.partition("=")
                if is_secret_name(inner) or inner.lower() in ("accountkey", "sharedaccesssignature"):
                    yield one
        yield from _secrets_of_url(value, proxy=name.lower().endswith("_proxy"))


def _secrets_of_url(text: str, *, proxy: bool = False) -> Iterator[str]:
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "", text
        if not proxy:
            return
    netloc = re.split(r"[/?#]", rest, maxsplit=1)[0]
    # A proxy's URL has no path: the text up to the last "@" holds its password, even if that was not escaped.
    odd = proxy or _has_odd_password(scheme, rest)
    user, _, password = (rest if odd else netloc).rpartition("@")[0].partition(":")
    if password:
        yield from (password, base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode())
    if scheme.lower() in S3_SCHEMES:
        return
    for name, value in parse_qsl(rest.partition("?")[2].partition("#")[0], errors="replace"):
        if is_secret_name(name) or len(value) >= _SHORTEST_UNNAMED:
            yield value


def _forms(value: str) -> set[str]:
    plain = value.strip()
    forms = {plain, unquote(plain)}
    forms |= {quote(form, safe=safe, errors="replace") for form in forms for safe in ("", "/")}
    forms |= {quote_plus(plain, errors="replace"), plain.replace("\\", "\\\\").replace('"', '\\"')}
    return forms


# -- texts and data -----------------------------------------------------------------------------


def scrub(text: str) -> str:
    """Return a text without known secrets and without text that looks like a secret."""
    for known in _longest_first:
        if known in text:
            text = text.replace(known, _MARK)
    lower = text.lower()
    for needed, looks, shown in _LOOKS:
        if needed in lower:
            text = looks.sub(shown, text)
    return text


def scrub_data(data: Any, *, names: bool = False) -> Any:
    """Scrub every text in JSON-able data; with `names`, drop all entries with a secret name."""
    if isinstance(data, str):
        return scrub(data)
    if isinstance(data, Mapping):
        return {
            key: _MARK
            if names and isinstance(value, str) and is_secret_name(str(key))
            else scrub_data(value, names=names)
            for key, value in data.items()
        }
    if isinstance(data, (list, tuple)):
        return [scrub_data(value, names=names) for value in data]
    return data


#: The most characters of a text from elsewhere in an error, or of a place in a list. A local path may have 4,096 bytes,
#: and a key of S3 1,024.
TEXT = 4096


def shortened(text: str, most: int = TEXT) -> str:
    """Return a text of at most `most` characters: a longer one is cut in its middle, and its length is told there."""
    if len(text) <= most:
        return text
    mark = f"[… {len(text):,} characters …]"
    half = max(0, most - len(mark)) // 2
    return f"{text[:half]}{mark}{text[len(text) - half :]}"


_TURNS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def printable(text: str) -> str:
    """Return text of any origin on one line, without characters that a terminal would obey."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if _obeyed(c) else c for c in text)


def _obeyed(char: str) -> bool:
    """True for control characters, surrogates, and characters that change the direction of text to disguise it."""
    return unicodedata.category(char) in ("Cc", "Cs") or unicodedata.bidirectional(char) in _TURNS


class Hidden(dict[str, Any]):
    """A dictionary that may hold secrets and shows none in its repr: tracebacks show local variables."""

    def __repr__(self) -> str:
        return repr(scrub_data(dict(self), names=True))


class ScrubbedStream:
    """A text stream that removes secrets; for logs, to which all code writes."""

    def __init__(self, stream: TextIO | TextIOBase) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text without its secrets."""
        self._stream.write(scrub(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts without their secrets."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


# -- local variables in tracebacks --------------------------------------------------------------


def frames_leak(trace: TracebackType | None) -> bool:
    """True if a local variable of a frame shows a secret, as verbose tracebacks would."""
    while trace is not None:
        if any(_leaks(value, 3) for value in list(trace.tb_frame.f_locals.values())):
            return True
        trace = trace.tb_next
    return False


def _leaks(value: Any, depth: int) -> bool:
    if isinstance(value, Hidden) or value is None or isinstance(value, (bool, int, float, type)):
        return False
    if isinstance(value, Mapping):
        # "key" names many things here; secret ones are known, or in a `Hidden`.
        some = list(value.items())[:200]
        named = any(isinstance(v, str) and v and k != "key" and is_secret_name(str(k)) for k, v in some)
        return named or (depth > 0 and any(_leaks(v, depth - 1) for v in list(value.values())[:200]))
    if isinstance(value, (list, tuple, set, frozenset)):
        return depth > 0 and any(_leaks(v, depth - 1) for v in list(value)[:200])
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value[:65536]).decode("latin-1")
    elif not isinstance(value, str):
        try:
            value = repr(value)
        except Exception:
            return False
    text: str = value[:65536]
    return scrub(text) != text or redacted(text) != text
