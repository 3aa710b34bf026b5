"""Self-signed certificates."""

from __future__ import annotations

from pathlib import Path

from nbdata.demo import certificates

__all__ = ["self_signed"]


def self_signed(file: Path) -> Path:
    """Write a self-signed certificate for 127.0.0.1, with its key in the same file."""
    file.write_bytes(certificates.self_signed())
    return file
