"""Objects that are created only where there is none."""

from __future__ import annotations

import io

import pytest

from nbdata.errors import NbdataError
from tests.conformance.conftest import Place


def test_an_object_is_created_once_if_the_store_can_refuse_the_second(place: Place) -> None:
    store = place.store.creating()
    if store is None:
        assert place.kind in ("local", "memory", "s3fs", "sftp", "ais")
        return
    store.write(place.prefix + "new", io.BytesIO(b"first"), 5)
    # The emulator knows no ifGenerationMatch, which Google's server obeys; AIStore knows no If-None-Match.
    if place.kind in ("gs", "ais-s3"):
        return
    with pytest.raises(NbdataError) as caught:
        store.write(place.prefix + "new", io.BytesIO(b"other"), 5)
    assert caught.value.details["status"] in (409, 412)
    assert place.get("new") == b"first"
    assert place.put("new", b"again").size == 5
    assert place.get("new") == b"again"
