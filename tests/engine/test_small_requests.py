"""Transfers of small objects limit the number of simultaneous requests, including retries."""

from __future__ import annotations

import hashlib
import re
import threading
from pathlib import Path

import pytest

import nbdata
from tests.slow import take
from tests.stores.servers import each, ok, serving, status

# Number of objects, and of simultaneous requests.
COUNT, ALLOWED = 80, 6


class Refusing:
    """A store of small objects that answers each request at the second attempt, and counts simultaneous requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known = set[str]()
        self.now = self.most = 0

    def answer(self, head: str) -> bytes:
        if "list-type=2" in head:
            found = "".join(f"<Contents><Key>d/{n}</Key><Size>1</Size></Contents>" for n in range(COUNT))
            listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>"
            return ok(listing.encode())
        wanted = re.search(r"/d/(\d+)", head)
        if wanted is None:
            return status(404)
        with self._lock:
            first = wanted[1] not in self._known
            self._known.add(wanted[1])
            self.now += 1
            self.most = max(self.most, self.now)
        take(0.02)
        with self._lock:
            self.now -= 1
        return status(500) if first else ok(b"x", f'ETag: "{hashlib.md5(b"x").hexdigest()}"')


def test_retries_count_towards_the_limit_of_simultaneous_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    server = Refusing()
    with serving(each(server.answer)) as port:
        options = {"endpoint_url": f"http://127.0.0.1:{port}", "region": "us-east-1"}
        report = nbdata.pull(
            "s3://bucket/d/", tmp_path, concurrency=ALLOWED, storage_options=options, quiet=True
        )
    assert report.counts == {"fetched": COUNT}
    assert 2 < server.most <= ALLOWED
