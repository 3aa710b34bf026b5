"""Pickling of sources: only how to find the credentials again is pickled, never the credentials."""

from __future__ import annotations

import multiprocessing.context

from nbdata.errors import BadOption
from nbdata.redaction import is_secret_name
from nbdata.verbs.samples import SampleSource

__all__ = ["refuse_secrets"]


def refuse_secrets(operation: SampleSource) -> None:
    """BadOption if pickling would write a secret, or an object that cannot be pickled, except into a child process."""
    if multiprocessing.context.get_spawning_popen() is not None:
        return  # the pickle goes through a pipe to a child of this process
    if operation.fs is not None:
        raise BadOption(
            "samples with fs= are not pickled: the file system may hold secrets",
            remedy="Name the place by its URL, and credentials by a profile or storage_options with env:NAME",
        )
    for name, value in (operation.storage_options or {}).items():
        if is_secret_name(name) and isinstance(value, str) and not value.startswith("env:"):
            raise BadOption(
                f"samples with {name} in storage_options are not pickled: it would be written down",
                remedy=f"Write storage_options={{{name!r}: 'env:NAME'}}, or put it into a profile",
            )
