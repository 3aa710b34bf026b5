"""The digest algorithms: a new one is an entry in `ALGORITHMS`, and everything else follows from it.

From here come the choices of options, the names of checksum files, the words in their lines and the lengths of digests.
`nbdata.integrity.digests.new_digest` makes a digest: a name that hashlib knows needs nothing more.
"""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass

__all__ = ["ALGORITHMS", "KNOWN", "Algorithm"]


@dataclass(frozen=True)
class Algorithm:
    """One digest algorithm.

    Attributes
    ----------
    name : str
        Its name, as hashlib has it, in options, reports and the names of checksum files (``SHA256SUMS``, ``a.sha256``).
    digits : int
        Hexadecimal digits of a digest.
    tags : tuple of str
        Other names for it in the lines of checksum files, such as ``SHA2-256 (name) = HEX``.
    is_crc : bool
        Whether it shows damage by chance only: anybody can find other bytes with the same value.
    package : str
        The package that computes it, if not every machine has that; else empty.
    """

    name: str
    digits: int
    tags: tuple[str, ...] = ()
    is_crc: bool = False
    package: str = ""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of its sidecars, in lower case: ``.md5`` and ``.md5sum``."""
        return (f".{self.name}",) if self.is_crc else (f".{self.name}", f".{self.name}sum")


ALGORITHMS = {
    one.name: one
    for one in (
        Algorithm("sha512", 128, ("SHA-512", "SHA2-512")),  # OpenSSL 3 writes SHA2
        Algorithm("sha256", 64, ("SHA-256", "SHA2-256")),
        Algorithm("sha1", 40, ("SHA-1",)),
        Algorithm("md5", 32),
        Algorithm("crc64nvme", 16, is_crc=True, package="awscrt"),
        Algorithm("crc32c", 8, ("CRC-32C",), is_crc=True),
        Algorithm("crc32", 8, ("CRC-32",), is_crc=True),
    )
}
"""The algorithms by name, strongest first."""

KNOWN = ChainMap(ALGORITHMS, {"xxh64": Algorithm("xxh64", 16, is_crc=True, package="awscrt")})
"""All that objects in a store are compared with. XXH64 is AIStore's, and no checksum file has it."""
