"""Samples as the first stage of a pipeline of the WebDataset library."""

from __future__ import annotations

from nbdata.client.reading.samples import Samples
from nbdata.loaders.pytorch.samples import SampleStream

__all__ = ["source"]


def source(samples: Samples, *, shuffle: bool = False, seed: int = 0, epoch: int = 0) -> SampleStream:
    """What stands in place of ``wds.WebDataset(urls)`` or of its stages up to ``tarfile_to_samples``.

    Samples come as that library makes them: dicts of bytes with ``__key__`` and ``__url__``. They are split over ranks
    and workers, so that no ``split_by_node`` or ``split_by_worker`` is needed.

    Parameters
    ----------
    samples : Samples
        Of shards, or of loose objects.
    shuffle : bool
        In an order of the epoch; a ``wds.shuffle`` after it is not needed.
    seed, epoch : int
        As of `nbdata.loaders.pytorch.SampleStream`; call its ``set_epoch`` before a pass with workers that do not
        persist.

    Returns
    -------
    SampleStream

    Examples
    --------
    Decoded and batched by the library::

        data = source(nbdata.samples("s3://bucket/train-{000000..000099}.tar"), shuffle=True, seed=1)
        pipeline = wds.DataPipeline(data, wds.decode("pil"), wds.to_tuple("jpg", "cls"), wds.batched(64))
    """
    return SampleStream(samples, shuffle=shuffle, seed=seed, epoch=epoch)
