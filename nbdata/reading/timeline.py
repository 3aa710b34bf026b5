"""A bounded record of when a consumer waited, and its picture."""

from __future__ import annotations

from dataclasses import dataclass, field

from nbdata.rendering import COLORS, dim
from nbdata.sizes import format_duration

__all__ = ["Timeline"]

# Most pieces of time that are kept; when all are used, each two are merged into one.
_PIECES = 120
# Seconds of a piece at the start.
_FIRST = 0.25
# Pixels of a full bar.
_HEIGHT, _WIDTH = 36, 5


@dataclass
class Timeline:
    """The seconds of waiting in each piece of time since the start.

    Attributes
    ----------
    piece : float
        Seconds of each piece.
    waited : list of float
        Per piece, the seconds of waiting in it.
    """

    piece: float = _FIRST
    waited: list[float] = field(default_factory=list)

    def add(self, began: float, ended: float) -> None:
        """Note a wait; the times are seconds since the start.

        A wait of one thread may begin before the start, if another thread's wait was the first to end.
        """
        began = max(0.0, began)
        while ended >= self.piece * _PIECES:
            pairs = range(0, len(self.waited), 2)
            self.waited = [sum(self.waited[at : at + 2]) for at in pairs]
            self.piece *= 2
        last = int(ended / self.piece)
        self.waited += [0.0] * (last + 1 - len(self.waited))
        for at in range(int(began / self.piece), last + 1):
            inside = min(ended, (at + 1) * self.piece) - max(began, at * self.piece)
            self.waited[at] += max(0.0, inside)

    def html(self) -> str:
        """Draw the share of waiting in each piece, as bars from 0 to 100 %."""
        bars = ""
        for waited in self.waited:
            height = round(_HEIGHT * min(1.0, waited / self.piece))
            style = f"float:left;width:{_WIDTH}px;height:{height}px;margin-top:{_HEIGHT - height}px"
            bars += f'<div style="{style};background-color:{COLORS["warning"]}"></div>'
        whole = format_duration(len(self.waited) * self.piece)
        style = (
            f"height:{_HEIGHT}px;width:{_WIDTH * len(self.waited)}px;background-color:rgba(128,128,128,0.15)"
        )
        return f'<div style="{style}">{bars}</div>' + dim(f"share of the time that was waited, over {whole}")
