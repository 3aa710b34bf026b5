"""Measures how fast a server delivers objects to clients that discard them.

The clients use plain sockets and send one request at a time.
"""

from __future__ import annotations

import multiprocessing
import socket
import time
from urllib.parse import urlsplit

from botocore.session import Session
from measure import process_cpu


def read_by_sockets(bucket: str, prefix: str, server: int, *, readers: int = 4) -> tuple[int, float, float]:
    """Read and discard all objects below a prefix; return bytes, seconds and the server's CPU seconds."""
    client = Session().create_client("s3")
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    urls = [
        client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": found["Key"]})
        for page in pages
        for found in page["Contents"]
    ]
    used, began = process_cpu(server), time.monotonic()
    with multiprocessing.get_context("fork").Pool(readers) as pool:
        read = sum(pool.map(read_all, [urls[n::readers] for n in range(readers)]))
    return read, time.monotonic() - began, process_cpu(server) - used


def read_all(urls: list[str]) -> int:
    """Read objects one after the other over one connection; return the bytes of their bodies."""
    if not urls:
        return 0
    where = urlsplit(urls[0])
    view, total = memoryview(bytearray(1 << 20)), 0
    with socket.create_connection((where.hostname or "", where.port or 80)) as connection:
        for url in urls:
            parts = urlsplit(url)
            request = f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n"
            connection.sendall(request.encode())
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(4096)
            fields, _, body = head.partition(b"\r\n\r\n")
            assert fields.startswith(b"HTTP/1.1 200"), fields
            length = int(fields.lower().partition(b"content-length:")[2].split()[0])
            left = length - len(body)
            while left:
                left -= connection.recv_into(view[: min(left, len(view))])
            total += length
    return total
