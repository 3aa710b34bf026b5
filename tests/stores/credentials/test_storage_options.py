"""Storage options that all HTTP stores share, and the refusal of unknown ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nbdata.errors import BadOption
from nbdata.operation import Context
from nbdata.stores.az.config import az_config
from nbdata.stores.credentials.storage_options import trusted, truth
from nbdata.stores.gs.config import gs_config
from nbdata.stores.http.config import http_config
from nbdata.stores.s3.config import s3_config

Configure = Callable[[Context], Any]
STORES: dict[str, Configure] = {
    "s3": lambda context: s3_config("s3", context),
    "gs": gs_config,
    "az": lambda context: az_config("account.dfs.core.windows.net", context),
    "http": lambda context: http_config("http://host/x", context),
}
each_store = pytest.mark.parametrize("store", STORES)


def configured(store: str, *, conf: dict[str, Any] | None = None, **options: Any) -> Any:
    env = {"HOME": "/nonexistent", "SSL_CERT_FILE": "/of/the/system.pem"}
    given = options if store == "http" else {"anon": True, **options}
    context = Context(cwd="/", env=env, storage_options=given, fsspec_conf={store: conf or {}})
    return STORES[store](context)


@each_store
@pytest.mark.parametrize("on", [True, 1, "true", "True"])
def test_certificates_are_checked_where_that_is_asked_for_in_any_spelling(store: str, on: object) -> None:
    config = configured(store, verify=on)
    assert (config.ca, config.verify) == ("/of/the/system.pem", True)


@each_store
@pytest.mark.parametrize("off", [False, 0, "false", "False"])
def test_certificates_are_not_checked_where_that_is_asked_for(store: str, off: object) -> None:
    assert configured(store, verify=off).verify is False


@each_store
def test_a_file_of_authorities_wins_over_that_of_the_environment(store: str) -> None:
    config = configured(store, verify="/my/own.pem")
    assert (config.ca, config.verify) == ("/my/own.pem", True)


@each_store
def test_what_is_given_wins_over_the_configuration_of_fsspec(store: str) -> None:
    assert configured(store, conf={"verify": False}).verify is False
    assert configured(store, conf={"verify": False}, verify=True).verify is True


@each_store
def test_an_option_that_is_misspelt_is_refused_with_the_nearest(store: str) -> None:
    with pytest.raises(BadOption, match="verfy") as caught:
        configured(store, verfy=True)
    assert caught.value.remedy == "Did you mean verify?"


def test_a_flag_is_true_or_false_and_nothing_else() -> None:
    assert truth("Yes", "anon")
    assert not truth("false", "anon")
    assert trusted("no", "ca") == ("ca", False)
    assert trusted("./ca", "") == ("./ca", True)
    with pytest.raises(BadOption, match="anon: 'ja' is not valid"):
        truth("ja", "anon")
    with pytest.raises(BadOption, match=r"verify: 'maybe' is not valid .*certificates"):
        trusted("maybe", "")
