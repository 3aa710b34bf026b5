"""Finds the readers of FFRecord files that an object has."""

from __future__ import annotations

from nbdata.client.records.reader import FileReader

__all__ = ["ReaderRegistry"]


class ReaderRegistry:
    """A base class for objects that read FFRecord files: `ffreaders` lists their readers.

    Examples
    --------
    >>> class Pair(ReaderRegistry):
    ...     def __init__(self, images, labels):
    ...         self.images, self.labels = FileReader(images), FileReader(labels)
    >>> Pair("images.ffr", "labels.ffr").ffreaders()  # doctest: +SKIP
    """

    def ffreaders(self) -> list[FileReader]:
        """Return the readers that are attributes of this object, then those of its attributes that are registries."""
        values = vars(self).values()
        readers = [value for value in values if isinstance(value, FileReader)]
        for value in values:
            if isinstance(value, ReaderRegistry):
                readers += value.ffreaders()
        return readers
