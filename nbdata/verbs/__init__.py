"""The verbs: one file per verb, with its Operation and the function of the same name."""

from __future__ import annotations

from typing import Any

from nbdata.errors import BadOption
from nbdata.operation import Operation
from nbdata.suggestions import suggest_verb
from nbdata.verbs.cache_stream import CacheStream
from nbdata.verbs.cleanup import Cleanup
from nbdata.verbs.complete import Complete
from nbdata.verbs.convert import Convert
from nbdata.verbs.copy import Copy
from nbdata.verbs.delete import Delete
from nbdata.verbs.listing import Du, Ls
from nbdata.verbs.md5check import Md5check
from nbdata.verbs.mount import Mount, Unmount
from nbdata.verbs.pack import Pack
from nbdata.verbs.probe import Probe
from nbdata.verbs.pull import Pull
from nbdata.verbs.push import Push
from nbdata.verbs.quota import Quota
from nbdata.verbs.sample_cache import SampleCache
from nbdata.verbs.samples import SampleSource
from nbdata.verbs.serve_samples import ServeSamples
from nbdata.verbs.shards import Shards
from nbdata.verbs.transfers import Transfers
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["GROUPS", "VERBS", "operation_from_dict"]

#: The verbs in the order of the help, by what they are for. The verbs in _OWN are internal.
GROUPS: dict[str, tuple[type[Operation], ...]] = {
    "Move": (Pull, Push, Copy, Delete),
    "Check and unpack": (Md5check, UntarVolumes),
    "Train": (CacheStream, SampleSource, ServeSamples, Pack, Shards, Convert),
    "Look": (Ls, Du, Mount, Unmount),
    "Disk space and jobs": (Quota, Transfers, Cleanup),
}
VERBS: dict[str, type[Operation]] = {cls.verb: cls for group in GROUPS.values() for cls in group}

_OWN: dict[str, type[Operation]] = {cls.verb: cls for cls in (Probe, Complete, SampleCache)}


def operation_from_dict(data: dict[str, Any]) -> Operation:
    """Rebuild and validate an Operation from `Operation.to_dict`."""
    options = dict(data)
    verb = options.pop("verb", None)
    cls = VERBS.get(str(verb)) or _OWN.get(str(verb))
    if cls is None:
        raise BadOption(f"unknown verb {verb!r}", remedy=suggest_verb(str(verb), list(VERBS)))
    return cls(**options)
