"""Access tokens: how often other packages are asked for them."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest

from nbdata.errors import AccessDenied
from nbdata.stores.credentials import bearer
from nbdata.stores.credentials.bearer import AskedToken


def test_a_token_that_ends_soon_is_not_asked_for_with_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Any]()

    def answer(command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        asked.append(options["input"])
        told = {"token": f"token {min(len(asked), 3)}", "expires": time.time() + 200}
        return subprocess.CompletedProcess(command, 0, json.dumps(told).encode())

    monkeypatch.setattr(subprocess, "run", answer)
    tokens = AskedToken("google_session", "test of bearer", {}, "the test")
    assert {tokens.header() for _ in range(100)} == {"Bearer token 1"}
    assert len(asked) == 1
    monkeypatch.setattr(bearer, "_ASK_AGAIN", 0.0)
    assert tokens.renewed("Bearer token 1")  # refused, although it has not ended
    assert tokens.header() == "Bearer token 3"
    assert not tokens.renewed("Bearer token 3")


def test_a_token_is_used_to_its_end_when_nobody_gives_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [{"token": "token", "expires": time.time() + 200}, {"error": "no answer"}]

    def answer(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        told = answers.pop(0) if len(answers) > 1 else answers[0]
        return subprocess.CompletedProcess(command, 0, json.dumps(told).encode())

    monkeypatch.setattr(subprocess, "run", answer)
    monkeypatch.setattr(bearer, "_ASK_AGAIN", 0.0)
    tokens = AskedToken("google_session", "test of its end", {}, "the test")
    assert [tokens.header() for _ in range(3)] == ["Bearer token"] * 3
    with pytest.raises(AccessDenied, match="no answer"):
        tokens.renewed("Bearer token")
