"""Samples as the beginning of a WebDataset pipeline, in its fluid or its pipeline interface."""

from __future__ import annotations

from typing import Any

from webdataset import DataPipeline, FluidInterface, filters, split_by_node, split_by_worker

from nbdata.client.reading.samples import Samples
from nbdata.errors import BadOption
from nbdata.loaders.pytorch.samples import SampleStream

__all__ = ["Source", "source"]

# The functions of the stages that return a sample before they take the next one. `batched` takes one more.
_PROMPT = {
    stage.f
    for stage in (
        filters.decode,
        filters.extract_keys,
        filters.log_keys,
        filters.map,
        filters.map_dict,
        filters.map_tuple,
        filters.rename,
        filters.rename_keys,
        filters.rsample,
        filters.select,
        filters.to_tuple,
        filters.xdecode,
    )
}


class Source(DataPipeline, FluidInterface):  # type: ignore[misc]
    """A pipeline of the webdataset library that begins with samples of nbdata; `source` makes it.

    Its methods (``shuffle``, ``decode``, ``to_tuple``, ``batched`` …) are those of ``wds.WebDataset``. Each returns a
    new pipeline with one more stage, over the same stream of samples.
    """

    @property
    def epoch(self) -> int:
        """The epoch of the running pass of this process, else of the next one."""
        return self._stream.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass."""
        self._stream.set_epoch(epoch)

    def append(self, stage: Any) -> None:
        """Add a stage to this pipeline.

        Raises
        ------
        BadOption
            If it would split the samples among ranks or workers once more.
        """
        if stage in (split_by_node, split_by_worker):
            raise BadOption(
                f"{stage.__name__}: these samples are already split among ranks and workers",
                remedy="Leave this stage out: it would drop samples",
            )
        super().append(stage)

    def state_dict(self) -> dict[str, Any]:
        """Return the process's position in its part; for loaders that save each worker's state, like torchdata's.

        Raises
        ------
        BadOption
            If a stage holds samples back that it has taken, or the pipeline repeats: its position is not known then.
        """
        self._refuse_unknown_position()
        return self._stream.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the next pass of this process resume at that position.

        Raises
        ------
        BadOption
            As in `state_dict`, and as in `nbdata.loaders.pytorch.SampleStream.load_state_dict`.
        """
        self._refuse_unknown_position()
        self._stream.load_state_dict(state)

    def _refuse_unknown_position(self) -> None:
        holding = [stage for stage in self.pipeline[1:] if getattr(stage, "f", None) not in _PROMPT]
        if holding or self.repetitions != 1:
            raise BadOption(
                f"the position of this pipeline is not known: {holding[0] if holding else 'it repeats'}",
                expected="only stages that return each sample before they take the next one, such as decode and map",
                remedy="Shuffle by source(…, shuffle=True), and let the loader make batches and repeat",
            )

    @property
    def _stream(self) -> SampleStream:
        stream: SampleStream = self.pipeline[0]
        return stream

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def source(
    samples: Samples,
    *,
    shuffle: bool = False,
    seed: int = 0,
    epoch: int = 0,
    rank: int | None = None,
    world_size: int | None = None,
) -> Source:
    """Return a data set that replaces ``wds.WebDataset(urls)``, or the stages up to ``tarfile_to_samples``.

    The samples are in that library's format: dicts of bytes with ``__key__`` and ``__url__``. They are already split
    among ranks and workers: leave ``split_by_node`` and ``split_by_worker`` out, also of a ``wds.DataPipeline``.

    Parameters
    ----------
    samples : Samples
        From shards, or from loose objects.
    shuffle : bool
        Use a random order for each epoch; a later ``shuffle`` is not needed.
    seed, epoch, rank, world_size
        As in `nbdata.loaders.pytorch.SampleStream`: each pass is the next epoch.

    Returns
    -------
    Source

    Examples
    --------
    Decoding and batching by the library, in its fluid interface::

        data = source(nbdata.samples("s3://bucket/train-{000000..000099}.tar"), shuffle=True, seed=1)
        batches = data.decode("pil").to_tuple("jpg", "cls").batched(64)
        loader = wds.WebLoader(batches, batch_size=None, num_workers=4)

    The same in its pipeline interface::

        batches = wds.DataPipeline(data, wds.decode("pil"), wds.to_tuple("jpg", "cls"), wds.batched(64))
    """
    return Source(
        SampleStream(samples, shuffle=shuffle, seed=seed, epoch=epoch, rank=rank, world_size=world_size)
    )
