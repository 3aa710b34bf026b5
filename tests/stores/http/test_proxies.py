"""Which requests go through a proxy: as curl and requests read the variables of the environment."""

from __future__ import annotations

import pytest

from nbdata.errors import BadOption
from nbdata.stores.http.proxies import proxy_for

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("no_proxy", "url", "excluded"),
    [
        ("example.com", "https://example.com", True),
        ("example.com", "https://a.example.com", True),
        (".example.com", "https://a.example.com", True),
        ("*.example.com", "https://a.example.com", True),
        ("example.com", "https://badexample.com", False),
        ("*.example.com", "https://badexample.com", False),
        ("other, example.com", "https://example.com", True),
        ("other example.com", "https://example.com", True),
        (" , ,", "https://example.com", False),
        ("*", "https://example.com", True),
        ("EXAMPLE.com", "https://Example.COM", True),
        ("example.com:8443", "https://example.com:8443", True),
        ("example.com:8443", "https://example.com", False),
        ("example.com:443", "https://example.com", True),
        ("10.0.0.0/8", "http://10.1.2.3:9000", True),
        ("10.0.0.0/8", "http://11.1.2.3:9000", False),
        ("10.1.2.3", "http://10.1.2.3:9000", True),
        ("10.1.2.3:9000", "http://10.1.2.3:9000", True),
        ("10.1.2.3:9001", "http://10.1.2.3:9000", False),
        ("10.0.0.0/8", "http://name:9000", False),
        ("10.0.0.0/99", "http://10.1.2.3:9000", False),
        ("fd00::/8", "http://[fd00::1]:9000", True),
        ("[::1]:9000", "http://[::1]:9000", True),
        ("::1", "http://[::1]:9000", True),
        ("::1", "http://[::2]:9000", False),
    ],
)
def test_hosts_that_no_proxy_names_are_reached_without_one(no_proxy: str, url: str, excluded: bool) -> None:
    env = {"all_proxy": PROXY, "no_proxy": no_proxy}
    assert proxy_for(url, env) == ("" if excluded else PROXY)


@pytest.mark.parametrize(
    "value", ["socks5h://me:word@proxy:1080", "socks5://proxy:1080", "SOCKS4://proxy:1080"]
)
@pytest.mark.parametrize("name", ["ALL_PROXY", "all_proxy", "https_proxy"])
def test_a_socks_proxy_is_refused_by_name(value: str, name: str) -> None:
    with pytest.raises(BadOption, match=r"(?i)socks\w+:// is no proxy that nbdata can use") as refused:
        proxy_for("https://example.com", {name: value})
    assert "word" not in str(refused.value)
    assert proxy_for("https://example.com", {name: value, "no_proxy": "example.com"}) == ""
