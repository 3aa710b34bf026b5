"""Looks into one object of a store, for people who browse: a bounded part of it, as text, table or picture.

`reading` fetches the part, `texts` and `pictures` say what it is. Nothing of an object is run or rendered here.
"""

from __future__ import annotations

from nbdata.client.previewing.reading import Preview, Previewing

__all__ = ["Preview", "Previewing"]
