"""Looks into one object of a store, for people who browse: a bounded part of it, as what it is, or as text.

`reading` fetches the part; `texts`, `pictures`, `records` and `media` say what it is. Nothing of an object is run or
rendered here.
"""

from __future__ import annotations

from nbdata.client.previewing.media import MOST_OF_PIECE, Piece, Playable
from nbdata.client.previewing.reading import Preview, Previewing

__all__ = ["MOST_OF_PIECE", "Piece", "Playable", "Preview", "Previewing"]
