"""Where an object lives: the node with the highest hash for its name ("rendezvous hashing").

As in ``core/meta/hrw.go`` and ``sdk/types.py`` (``Smap.get_target_for_object``): the SDK computes the same to read from
a node directly.
"""

from __future__ import annotations

from collections.abc import Iterable

from awscrt.checksums import XXHash

__all__ = ["digest_of", "place_of", "unique_name"]

# ``cos.MLCG32`` in ``cmn/cos/const.go``.
_SEED = 1103515245
_MASK = (1 << 64) - 1


def digest_of(name: str) -> int:
    """The 64-bit digest of a node's id, or of an object's unique name."""
    return int.from_bytes(XXHash.compute_xxhash64(name.encode("utf-8", "surrogateescape"), _SEED), "big")


def unique_name(provider: str, bucket: str, name: str) -> str:
    """The name of an object in the whole cluster, in the global namespace (``cmn.Bck.MakeUname``)."""
    return f"{provider}/@#/{bucket}/{name}"


def place_of(uname: str, nodes: Iterable[str]) -> str:
    """The id of the node that has the object."""
    digest = digest_of(uname)
    return max(nodes, key=lambda node: _mixed(digest_of(node) ^ digest))


def _mixed(seed: int) -> int:
    """The first number of xoshiro256** for a seed ("xoshiro256**", Blackman and Vigna), as the SDK computes it."""
    z = (seed + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z = ((z ^ (z >> 31)) + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z = ((z ^ (z >> 31)) * 5) & _MASK
    return ((((z << 7) | (z >> 57)) & _MASK) * 9) & _MASK
