"""Suggests what is there under a similar name, when a source is not there."""

from __future__ import annotations

import difflib
import itertools
from urllib.parse import quote

from nbdata.errors import NbdataError
from nbdata.redaction import redacted
from nbdata.stores.base import Location
from nbdata.transfer.control import Control
from nbdata.transfer.retry import listing_of_folder

__all__ = ["close_name"]

# Most names that are looked at, and the least likeness (from 0 to 1) of one that is suggested.
_LOOKED_AT, _ALIKE = 1000, 0.7


def close_name(control: Control, missing: Location) -> str:
    """Return the place beside a missing one whose name is most like it; empty if there is none.

    Lists the folder of the missing place once, and only its first names.
    """
    above, _, name = missing.key.rstrip("/").rpartition("/")
    prefix = f"{above}/" if above else ""
    try:
        beside = itertools.islice(listing_of_folder(control, missing.store, prefix), _LOOKED_AT)
        names = [info.key[len(prefix) :] for info in beside]
    except NbdataError:  # the source is missing all the same
        return ""
    bare = {one.rstrip("/").lower(): one for one in reversed(names) if one.rstrip("/") != name}
    near = difflib.get_close_matches(name.lower(), bare, n=1, cutoff=_ALIKE)
    if not near or not name:
        return ""
    found = bare[near[0]]
    shown = quote(found) if missing.place.startswith("http") else found
    return redacted(f"{missing.place.rstrip('/').rpartition('/')[0]}/{shown}")
