"""``nbdata serve-samples``: a service over samples of a store, in this process."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from nbdata.errors import BadOption
from nbdata.loaders.pytorch.sample_loader import SampleLoader
from nbdata.loaders.service.server import opened
from nbdata.operation import slots
from nbdata.verbs.samples import SampleSource
from nbdata.verbs.serve_samples import ServeSamples

__all__ = ["served"]


def served(operation: ServeSamples, quiet: bool) -> None:
    """Serve until Ctrl-C. Unless `quiet`, print the line that trainers need."""
    transform = None if operation.transform is None else _function(operation.transform)
    loader = SampleLoader(
        slots.samples(SampleSource(source=operation.source), True),
        operation.batch,
        shuffle=operation.shuffle,
        seed=operation.seed,
        transform=transform,
        num_workers=operation.workers,
    )
    with opened(
        loader,
        listen=operation.listen,
        name=operation.name,
        mode=operation.mode,
        consumers=operation.consumers,
        ahead=operation.ahead,
        state=operation.state,
    ) as service:
        service.run(lambda: None if quiet else _say(service.address))


def _say(address: str) -> None:
    sys.stdout.write(f"Client({address!r})\n")
    sys.stdout.flush()


def _function(named: str) -> Callable[..., Any]:
    """Return the function that is named MODULE:FUNCTION."""
    module, _, name = named.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise BadOption(f"--transform: {named} cannot be imported ({error})") from error
    if not callable(found):
        raise BadOption(f"--transform: {named} is no function")
    return found  # type: ignore[no-any-return]
