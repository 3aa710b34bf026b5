"""How each tool does the same work: command lines, and the short programs that people write with a library.

Run as a program (``python peers.py s3fs pull URL FOLDER``), this file is the library's program, in its own process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

BIN = Path(sys.executable).parent
# Enough threads that something else limits the library.
_THREADS = 32

Command = Callable[[str, str], list[str]]


def _program(library: str, verb: str) -> Command:
    return lambda source, target: [sys.executable, __file__, library, verb, source, target]


def _rclone(url: str) -> str:
    return ":s3:" + url.removeprefix("s3://")


# The command for a source and a target, by tool and verb; folders have no slash at their end.
COMMANDS: dict[str, dict[str, Command]] = {
    "nbdata": {
        "pull": lambda url, folder: [str(BIN / "nbdata"), "pull", f"{url}/", folder, "-q"],
        "push": lambda folder, url: [str(BIN / "nbdata"), "push", folder, f"{url}/", "-q"],
        "copy": lambda url, other: [str(BIN / "nbdata"), "copy", f"{url}/", f"{other}/", "-q"],
        "nothing": lambda url, folder: [str(BIN / "nbdata"), "pull", f"{url}/", folder, "-q"],
        "plan": lambda url, folder: [str(BIN / "nbdata"), "pull", f"{url}/", folder, "-n"],
    },
    "s5cmd": {
        "pull": lambda url, folder: [str(BIN / "s5cmd"), "cp", f"{url}/*", f"{folder}/"],
        "push": lambda folder, url: [str(BIN / "s5cmd"), "cp", f"{folder}/", f"{url}/"],
        "copy": lambda url, other: [str(BIN / "s5cmd"), "cp", f"{url}/*", f"{other}/"],
        "nothing": lambda url, folder: [str(BIN / "s5cmd"), "sync", f"{url}/*", f"{folder}/"],
        "plan": lambda url, folder: [str(BIN / "s5cmd"), "--dry-run", "cp", f"{url}/*", f"{folder}/"],
    },
    "rclone": {
        "pull": lambda url, folder: [*_RCLONE, "copy", _rclone(url), folder],
        "push": lambda folder, url: [*_RCLONE, "copy", folder, _rclone(url)],
        "copy": lambda url, other: [*_RCLONE, "copy", _rclone(url), _rclone(other)],
        "nothing": lambda url, folder: [*_RCLONE, "copy", _rclone(url), folder],
    },
    "s3fs": {"pull": _program("s3fs", "pull"), "push": _program("s3fs", "push")},
    "boto3": {"pull": _program("boto3", "pull"), "push": _program("boto3", "push")},
}
_RCLONE = [str(BIN / "rclone"), "--config=/dev/null", f"--transfers={_THREADS}", f"--checkers={_THREADS}"]


def rclone_environment(endpoint: str) -> dict[str, str]:
    """Return the environment variables that tell rclone about the server; it takes the keys from AWS's variables."""
    return {
        "RCLONE_S3_PROVIDER": "SeaweedFS",
        "RCLONE_S3_ENV_AUTH": "true",
        "RCLONE_S3_ENDPOINT": endpoint,
        "RCLONE_S3_NO_CHECK_BUCKET": "true",
    }


def _s3fs(verb: str, source: str, target: str) -> None:
    import s3fs

    fs = s3fs.S3FileSystem()
    if verb == "pull":
        fs.get(f"{source}/", f"{target}/", recursive=True)
    else:
        fs.put(f"{source}/", f"{target}/", recursive=True)


def _boto3(verb: str, source: str, target: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import boto3
    from botocore.config import Config

    client = boto3.client("s3", config=Config(max_pool_connections=_THREADS))
    bucket, _, prefix = (source if verb == "pull" else target).removeprefix("s3://").partition("/")

    def get(key: str) -> None:
        client.download_file(bucket, key, os.path.join(target, key.removeprefix(f"{prefix}/")))

    def put(name: str) -> None:
        client.upload_file(os.path.join(source, name), bucket, f"{prefix}/{name}")

    with ThreadPoolExecutor(_THREADS) as pool:
        if verb == "pull":
            os.makedirs(target, exist_ok=True)
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
            list(pool.map(get, (found["Key"] for page in pages for found in page["Contents"])))
        else:
            list(pool.map(put, os.listdir(source)))


if __name__ == "__main__":
    {"s3fs": _s3fs, "boto3": _boto3}[sys.argv[1]](*sys.argv[2:])
