"""``tf.data`` over samples, and over any stream whose items become tensors while their files exist."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from nbdata.client.reading.samples import Samples
from nbdata.errors import BadOption, NbdataError

__all__ = ["dataset"]


def dataset(
    source: Samples | Iterable[Any],
    output_signature: Any = None,
    *,
    transform: Callable[[Any], Any] | None = None,
    shuffle: bool = False,
    seed: int = 0,
    epoch: int = 0,
    part: str | None = None,
) -> tf.data.Dataset:
    """Make a ``tf.data.Dataset`` of a source's elements, fetched ahead in its order.

    Parameters
    ----------
    source : Samples or iterable
        Samples are streamed; each pass is the next epoch. Any other iterable, such as `nbdata.cache_stream`, is
        iterated anew in each pass.
    output_signature : nested structure of tf.TypeSpec, optional
        The type of the elements, as in ``tf.data.Dataset.from_generator``. None: dicts with the fields of the first
        sample as byte strings; then every sample must have the same fields.
    transform : callable, optional
        Makes an element of `output_signature` from a sample or an item. Files of a cache exist only during the call, so
        it must read them. Required for anything but samples.
    shuffle, seed, part
        As in ``Samples.stream``; an iterable has its own order.
    epoch : int
        The epoch of the first pass.

    Returns
    -------
    tf.data.Dataset

    Raises
    ------
    BadOption
        If `transform` or `output_signature` is missing and needed.

    Examples
    --------
    >>> data = dataset(nbdata.samples("s3://bucket/images/"), shuffle=True)  # doctest: +SKIP
    >>> data = data.map(lambda s: (tf.io.decode_jpeg(s["jpg"]), s["cls"])).batch(64)  # doctest: +SKIP
    """
    if (transform is None) != (output_signature is None) and not isinstance(source, Samples):
        raise BadOption(
            "dataset: transform and output_signature belong together", expected="both, or none of them"
        )
    if not isinstance(source, Samples):
        if transform is None:
            raise BadOption(
                "dataset: items of a stream are gone when the next one comes",
                remedy="Give a transform that reads what it needs of an item, and its output_signature",
            )
        return tf.data.Dataset.from_generator(
            lambda: map(transform, source), output_signature=output_signature
        )
    if transform is not None and output_signature is None:
        raise BadOption("dataset: what does transform return?", expected="output_signature")
    fields: list[str] = []
    if output_signature is None:
        first = source[0]
        if not isinstance(first, dict):
            raise BadOption("dataset: items that are no dicts need a transform, and an output_signature")
        fields = list(first)
        output_signature = {name: tf.TensorSpec((), tf.string) for name in fields}
    passes = itertools.count(epoch)

    def elements() -> Iterator[Any]:
        for sample in source.stream(shuffle=shuffle, seed=seed, epoch=next(passes), part=part):
            if transform is not None:
                yield transform(sample)
            elif fields and sample.keys() != set(fields):
                raise _other_fields(sample, fields)
            else:
                yield sample

    return tf.data.Dataset.from_generator(elements, output_signature=output_signature)


def _other_fields(sample: dict[str, Any], fields: list[str]) -> NbdataError:
    def named(names: Iterable[str]) -> str:
        return ", ".join(sorted(name for name in names if not name.startswith("__")))

    return NbdataError(
        f"the sample {sample['__key__']!r} has other fields than the first one",
        expected=named(fields),
        got=named(sample),
        path=sample["__url__"],
        remedy="Give a transform and an output_signature, or leave such samples out with include or exclude",
    )
