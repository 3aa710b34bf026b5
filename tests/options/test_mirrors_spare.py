"""A mirror (``--delete``) never deletes what an option of its own command leaves out.

Else a new filter that only the copying part knows would delete the files that it leaves out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.errors import BadOption
from nbdata.option import options_of
from nbdata.verbs import VERBS
from nbdata.verbs.options import Mirroring, Selecting

from .cases import AGES, FILTERS, LIMITS
from .scenes import FILES, Place

pytestmark = pytest.mark.usefixtures("inline")

MIRRORS = [name for name, verb in VERBS.items() if issubclass(verb, Mirroring)]
VALUES = {**FILTERS, **AGES, **LIMITS, "seed": 3}


@pytest.mark.parametrize("option", options_of(Selecting))
@pytest.mark.parametrize("verb", MIRRORS)
def test_what_an_option_leaves_out_is_not_deleted(
    tmp_path: Path, put: Callable[[dict[str, bytes]], str], verb: str, option: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        place = Place(tmp_path, put, patch, "run")
        source = place.url() if verb == "copy" else place.folder()
        more = {**FILES, "old.jpg": b"old", "old.txt": b"old"}
        target = place.url("target", more) if verb == "copy" else place.folder("target", more)
        value = VALUES[option](place) if callable(VALUES[option]) else VALUES[option]
        options: dict[str, Any] = {option: value, "delete": True, "force": True, "dry_run": True}
        if option in AGES or option in LIMITS:
            with pytest.raises(BadOption, match="--delete with"):
                getattr(nbdata, verb)(source, target, **options)
            return
        plan = getattr(nbdata, verb)(source, target, **options)
    deleted = {row.path for row in plan.rows if row.action == "delete"}
    assert deleted == {"include": {"old.jpg"}, "exclude": {"old.txt"}, "seed": {"old.jpg", "old.txt"}}[option]
