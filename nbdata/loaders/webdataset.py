"""Samples as the first stage of a WebDataset pipeline."""

from __future__ import annotations

from nbdata.client.reading.samples import Samples
from nbdata.loaders.pytorch.samples import SampleStream

__all__ = ["source"]


def source(
    samples: Samples,
    *,
    shuffle: bool = False,
    seed: int = 0,
    epoch: int = 0,
    rank: int | None = None,
    world_size: int | None = None,
) -> SampleStream:
    """Return a data set that replaces ``wds.WebDataset(urls)``, or its stages up to ``tarfile_to_samples``.

    The samples are in that library's format: dicts of bytes with ``__key__`` and ``__url__``. They are already split
    over ranks and workers, so ``split_by_node`` and ``split_by_worker`` are not needed.

    Parameters
    ----------
    samples : Samples
        From shards, or from loose objects.
    shuffle : bool
        Use a random order for each epoch; a later ``wds.shuffle`` is not needed.
    seed, epoch, rank, world_size
        As in `nbdata.loaders.pytorch.SampleStream`: each pass is the next epoch.

    Returns
    -------
    SampleStream

    Examples
    --------
    Decoding and batching by the library::

        data = source(nbdata.samples("s3://bucket/train-{000000..000099}.tar"), shuffle=True, seed=1)
        pipeline = wds.DataPipeline(data, wds.decode("pil"), wds.to_tuple("jpg", "cls"), wds.batched(64))
    """
    return SampleStream(samples, shuffle=shuffle, seed=seed, epoch=epoch, rank=rank, world_size=world_size)
