"""S3 settings: the order of precedence of keys and endpoints, the use of botocore, and secrets that never appear."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nbdata.engine.job.task import Task
from nbdata.errors import AccessDenied, BadOption
from nbdata.operation import Context
from nbdata.report import Report, Snapshot
from nbdata.stores.s3.config import S3Config, s3_config
from tests.waiting import AT_ONCE, PATIENCE

SECRETS = (
    "AKIAOPTION",
    "SECRETOPTION",
    "TOKENOPTION",
    "AKIAENV",
    "SECRETENV",
    "AKIAPROFILE",
    "SECRETPROFILE",
    "AKIACONF",
)


class Home:
    """A home folder with AWS files, and contexts of users with this home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".aws").mkdir()

    def config(self, text: str) -> None:
        (self.folder / ".aws/config").write_text(text)

    def credentials(self, text: str) -> None:
        (self.folder / ".aws/credentials").write_text(text)

    def context(
        self, *, options: dict[str, Any] | None = None, conf: dict[str, Any] | None = None, **env: str
    ) -> Context:
        base = {"HOME": str(self.folder), "AWS_EC2_METADATA_DISABLED": "true", "PATH": "/usr/bin:/bin"}
        return Context(
            cwd="/",
            env={**base, **env},
            storage_options=options or {},
            fsspec_conf={"s3": conf} if conf else {},
        )

    def s3(self, **given: Any) -> S3Config:
        return s3_config("s3", self.context(**given))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


OPTIONS = {"key": "AKIAOPTION", "secret": "SECRETOPTION", "token": "TOKENOPTION"}
CONF = {"key": "AKIACONF", "secret": "SECRETCONF"}
ENV = {"AWS_ACCESS_KEY_ID": "AKIAENV", "AWS_SECRET_ACCESS_KEY": "SECRETENV"}
PROFILE = "[default]\naws_access_key_id = AKIAPROFILE\naws_secret_access_key = SECRETPROFILE\n"


def test_options_win_over_configuration_that_over_the_environment_and_that_over_profiles(home: Home) -> None:
    home.credentials(PROFILE)
    found = [
        home.s3(options=OPTIONS, conf=CONF, **ENV),
        home.s3(conf=CONF, **ENV),
        home.s3(**ENV),
        home.s3(),
    ]
    keys = [config.identity.key for config in found if config.identity]
    assert keys == ["AKIAOPTION", "AKIACONF", "AKIAENV", "AKIAPROFILE"]
    sources = [config.identity.source for config in found if config.identity]
    assert sources[0] == "storage options"
    assert sources[1] == "fsspec's configuration"
    assert sources[2] == "the environment"
    assert "configuration files" in sources[3]


def test_a_session_token_comes_from_where_the_keys_come_from(home: Home) -> None:
    identity = home.s3(**ENV, AWS_SESSION_TOKEN="TOKENENV").identity
    assert identity is not None
    assert identity.token == "TOKENENV"
    identity = home.s3(
        options={"key": "AKIAOPTION", "secret": "SECRETOPTION"}, **ENV, AWS_SESSION_TOKEN="TOKENENV"
    ).identity
    assert identity is not None
    assert (identity.key, identity.token) == ("AKIAOPTION", "")


def test_keys_of_two_places_are_not_mixed(home: Home) -> None:
    identity = home.s3(
        options={"key": "AKIAOPTION", "secret": "SECRETOPTION"}, conf={"token": "TOKENCONF", **CONF}
    ).identity
    assert identity is not None
    assert (identity.key, identity.secret, identity.token) == ("AKIAOPTION", "SECRETOPTION", "")


@pytest.mark.parametrize("half", [{"key": "AKIAOPTION"}, {"secret": "SECRETOPTION"}])
def test_half_an_identity_is_refused(home: Home, half: dict[str, str]) -> None:
    """It must not silently become the environment's identity."""
    with pytest.raises(BadOption, match="together"):
        home.s3(options=half, **ENV)


def test_a_profile_that_was_named_wins_over_keys_in_the_environment(home: Home) -> None:
    home.credentials(
        PROFILE + "[other]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = SECRETOTHER\n"
    )
    identity = home.s3(options={"profile": "other"}, **ENV).identity
    assert identity is not None
    assert identity.key == "AKIAOTHER"
    assert "other" in identity.source


def test_a_profile_that_was_named_wins_over_keys_in_the_configuration(home: Home) -> None:
    home.credentials(PROFILE)
    identity = home.s3(options={"profile": "default"}, conf=CONF).identity
    assert identity is not None
    assert identity.key == "AKIAPROFILE"


def test_keys_in_the_environment_win_over_a_profile_that_it_names_as_they_do_in_botocore(home: Home) -> None:
    home.config("[default]\n[profile other]\nregion = eu-central-1\n")
    home.credentials(PROFILE.replace("default", "other"))
    config = home.s3(**ENV, AWS_PROFILE="other")
    assert config.identity is not None
    assert (config.identity.key, config.region) == ("AKIAENV", "eu-central-1")
    assert "go before AWS_PROFILE" in config.identity.source


@pytest.mark.long
def test_a_profile_has_region_endpoint_and_authorities(home: Home) -> None:
    home.config(
        "[profile mine]\nregion = eu-central-1\nendpoint_url = https://store.example\n"
        "ca_bundle = /etc/ca.pem\n"
    )
    home.credentials(PROFILE.replace("default", "mine"))
    config = home.s3(options={"profile": "mine"})
    assert (config.region, config.endpoint, config.ca) == (
        "eu-central-1",
        "https://store.example",
        "/etc/ca.pem",
    )
    config = home.s3(options={"profile": "mine", "endpoint_url": "http://other:1"}, AWS_REGION="us-west-2")
    assert (config.region, config.endpoint) == ("us-west-2", "http://other:1")


def test_a_service_section_of_a_profile_wins_over_its_endpoint(home: Home) -> None:
    home.config(
        "[profile mine]\nservices = lab\nendpoint_url = https://all.example\n"
        "[services lab]\ns3 =\n  endpoint_url = https://s3.example:9000\n"
    )
    home.credentials(PROFILE.replace("default", "mine"))
    assert home.s3(options={"profile": "mine"}).endpoint == "https://s3.example:9000"


def test_the_default_profile_gives_the_endpoint_to_keys_of_the_environment(home: Home) -> None:
    home.config("[default]\nendpoint_url = https://store.example\nregion = eu-west-1\n")
    config = home.s3(**ENV)
    assert (config.endpoint, config.region) == ("https://store.example", "eu-west-1")
    assert config.identity is not None
    assert config.identity.key == "AKIAENV"


def test_the_environment_names_endpoints_for_all_services_or_for_s3(home: Home) -> None:
    config = home.s3(**ENV, AWS_ENDPOINT_URL="http://all:1")
    assert config.endpoint == "http://all:1"
    config = home.s3(**ENV, AWS_ENDPOINT_URL="http://all:1", AWS_ENDPOINT_URL_S3="http://s3:2")
    assert config.endpoint == "http://s3:2"


@pytest.mark.long
def test_a_program_that_makes_credentials_is_run_with_the_clients_environment(home: Home) -> None:
    answer = {
        "Version": 1,
        "AccessKeyId": "AKIAPROCESS",
        "SecretAccessKey": "SECRETPROCESS",
        "SessionToken": "TOKENPROCESS",
    }
    program = home.folder / "program.py"
    program.write_text(
        "import json, os\n"
        f"answer = {json.dumps(answer)}\n"
        "answer['SessionToken'] += os.environ['AWS_TEST_WHO']\n"
        "print(json.dumps(answer))\n"
    )
    home.config(f"[profile made]\ncredential_process = {sys.executable} {program}\n")
    identity = home.s3(options={"profile": "made"}, AWS_TEST_WHO="1").identity
    assert identity is not None
    assert (identity.key, identity.secret, identity.token) == (
        "AKIAPROCESS",
        "SECRETPROCESS",
        "TOKENPROCESS1",
    )
    assert home.s3(options={"profile": "made"}, AWS_TEST_WHO="2").identity.token.endswith("2")  # type: ignore[union-attr]


def test_a_cancel_does_not_wait_for_credentials(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.config("[profile slow]\nregion = eu-west-1\n")
    asking, answered = threading.Event(), threading.Event()

    def silent(*_: object, **__: object) -> None:
        asking.set()
        answered.wait(10 * PATIENCE)
        raise subprocess.TimeoutExpired("python", 60)

    def work(task: Task) -> Report:
        s3_config("s3", home.context(options={"profile": "slow"}), stop=task)
        return Report("pull", "s3://bucket/", state="DONE")

    monkeypatch.setattr(subprocess, "run", silent)
    task = Task(Snapshot(id="t", verb="pull"))
    task.start(work)
    assert asking.wait(PATIENCE)
    began = time.monotonic()
    task.cancel()
    task.wait_end(PATIENCE)
    answered.set()
    assert task.snapshot().state == "CANCELLED"
    assert time.monotonic() - began < AT_ONCE


def test_credentials_that_end_soon_are_asked_for_again(home: Home) -> None:
    count = home.folder / "count"
    program = home.folder / "program.py"
    program.write_text(
        "import json, datetime\n"
        f"open({str(count)!r}, 'a').write('x')\n"
        "end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=200)\n"
        "print(json.dumps(dict(Version=1, AccessKeyId='AKIA', SecretAccessKey='S', SessionToken='T', "
        "Expiration=end.isoformat())))\n"
    )
    home.config(f"[profile short]\ncredential_process = {sys.executable} {program}\n")
    for _ in range(2):
        identity = home.s3(options={"profile": "short"}).identity
        assert identity is not None
        assert identity.expires is not None
    assert len(count.read_text()) >= 2


def test_a_program_that_fails_is_an_error_that_names_the_profile(home: Home) -> None:
    home.config("[profile broken]\ncredential_process = /bin/false\n")
    with pytest.raises(AccessDenied, match="broken"):
        home.s3(options={"profile": "broken"})


def test_a_profile_that_is_not_there_is_named(home: Home) -> None:
    with pytest.raises(AccessDenied, match="nowhere"):
        home.s3(options={"profile": "nowhere"}, **ENV)


def test_a_key_without_its_secret_in_the_environment_says_which_is_missing(home: Home) -> None:
    with pytest.raises(AccessDenied, match=r"AWS_SECRET_ACCESS_KEY\. Set that one too"):
        home.s3(AWS_ACCESS_KEY_ID="AKIAENV")


def test_no_credentials_at_all_say_what_would_do(home: Home) -> None:
    with pytest.raises(AccessDenied) as caught:
        home.s3()
    assert "AWS_ACCESS_KEY_ID" in str(caught.value)
    assert "anon=true" in str(caught.value)


@pytest.mark.parametrize("anon", [True, "true", "1", "yes"])
def test_anonymous_signs_nothing_whatever_is_set(home: Home, anon: object) -> None:
    home.credentials(PROFILE)
    assert home.s3(options={"anon": anon}, **ENV).identity is None


def test_an_unknown_option_gets_a_suggestion(home: Home) -> None:
    with pytest.raises(BadOption, match="endpoint_url"):
        home.s3(options={"endpoint": "http://x"}, **ENV)
    with pytest.raises(BadOption) as caught:
        home.s3(options={"secrte": "SECRETOPTION"}, **ENV)
    assert "secret" in str(caught.value)
    assert "SECRETOPTION" not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["ftp://x", "http://", "http://host:99999", "http://host:port", "://"])
def test_an_endpoint_that_is_no_url_is_refused(home: Home, endpoint: str) -> None:
    with pytest.raises(BadOption, match="endpoint_url"):
        home.s3(options={"endpoint_url": endpoint}, **ENV)


def test_an_endpoint_may_be_a_host_alone(home: Home) -> None:
    assert home.s3(options={"endpoint_url": "store.example"}, **ENV).endpoint == "https://store.example"
    assert (
        home.s3(options={"endpoint_url": "store:9000", "use_ssl": False}, **ENV).endpoint
        == "http://store:9000"
    )


@pytest.mark.parametrize(
    ("bucket", "options", "where"),
    [
        ("data", {}, ("https", "data.s3.eu-west-1.amazonaws.com", 443, "")),
        ("my.data", {}, ("https", "s3.eu-west-1.amazonaws.com", 443, "/my.data")),
        ("data", {"endpoint_url": "http://store:9000"}, ("http", "store", 9000, "/data")),
        ("data", {"endpoint_url": "http://store/s3/"}, ("http", "store", 80, "/s3/data")),
        (
            "data", {"endpoint_url": "https://store", "addressing_style": "virtual"},
            ("https", "data.store", 443, ""),
        ),
        ("data", {"addressing_style": "path"}, ("https", "s3.eu-west-1.amazonaws.com", 443, "/data")),
        (
            "data", {"config_kwargs": {"s3": {"addressing_style": "path"}}},
            ("https", "s3.eu-west-1.amazonaws.com", 443, "/data"),
        ),
    ],
)  # fmt: skip
def test_the_bucket_is_addressed_by_host_or_path(
    home: Home, bucket: str, options: dict[str, Any], where: tuple[str, str, int, str]
) -> None:
    assert home.s3(options=options, AWS_REGION="eu-west-1", **ENV).host_for(bucket) == where


def test_obs_is_s3_at_an_endpoint_of_its_own(home: Home) -> None:
    env = {"OBS_ACCESS_KEY_ID": "AKIAOBS", "OBS_SECRET_ACCESS_KEY": "SECRETOBS", "OBS_REGION": "cn-north-4"}
    config = s3_config("obs", home.context(**env, **ENV))
    assert config.identity is not None
    assert config.identity.key == "AKIAOBS"
    assert config.host_for("data") == ("https", "data.obs.cn-north-4.myhuaweicloud.com", 443, "")
    with pytest.raises(BadOption, match="OBS_REGION"):
        s3_config("obs", home.context(**ENV))


def test_proxies_are_those_of_the_usual_variables(home: Home) -> None:
    def proxy(endpoint: str, **env: str) -> str:
        return home.s3(options={"endpoint_url": endpoint}, **ENV, **env).proxy

    assert proxy("https://s.example", https_proxy="http://p:1", http_proxy="http://q:2") == "http://p:1"
    assert proxy("http://s.example", https_proxy="http://p:1", http_proxy="q:2") == "http://q:2"
    assert proxy("http://s.example", HTTP_PROXY="http://q:2") == ""
    assert proxy("https://s.example", HTTPS_PROXY="http://p:1", NO_PROXY="other, .example") == ""
    assert proxy("https://s.example", all_proxy="http://a:3") == "http://a:3"
    assert proxy("https://s.example", all_proxy="http://a:3", no_proxy="*") == ""


def test_no_secret_is_shown_anywhere(home: Home) -> None:
    home.credentials(PROFILE)
    context = home.context(options=OPTIONS, conf=CONF, **ENV, https_proxy="http://me:PROXYPASS@p:1")
    config = s3_config("s3", context)
    shown = f"{context!r} {context} {config!r} {config} {config.identity!r} {config.identity}"
    shown += repr(home.s3()) + repr(home.s3(**ENV))
    for secret in (*SECRETS, "PROXYPASS"):
        assert secret not in shown
