"""The server's log: a request that fails is logged without the token that its URL holds."""

from __future__ import annotations

import contextlib

import pytest
import websocket

from tests.lab import Lab
from tests.waiting import PATIENCE, wait_until


def logged(lab: Lab, start: int, what: str) -> str:
    """Return the log from a position on, once it has a text."""

    def text() -> str:
        return lab.log.read_text()[start:]

    wait_until(lambda: what in text(), why=lambda: f"{what!r} was not logged: {text()}")
    return text()


def connect(lab: Lab) -> websocket.WebSocket:
    where = f"{lab.url.replace('http', 'ws')}/nbdata/api/live?token={lab.token}"
    return websocket.create_connection(where, timeout=PATIENCE)


@pytest.mark.long
def test_a_browser_too_many_is_refused_and_its_token_not_logged(lab: Lab) -> None:
    start = len(lab.log.read_text())
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(contextlib.closing(connect(lab))) for _ in range(100)]
        for one in many:
            one.recv()  # from now on it counts
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            connect(lab)
        assert refused.value.status_code == 503
        log = logged(lab, start, "too many browser tabs")
    assert "/nbdata/api/live" in log
    assert lab.token not in log


@pytest.mark.parametrize("body", [b"[]", b"no json", b'{"path": 5}'])
def test_a_wrong_request_is_refused_and_its_token_not_logged(lab: Lab, body: bytes) -> None:
    start = len(lab.log.read_text())
    answer = lab.ask(f"nbdata/api/caches/clear?token={lab.token}", "POST", token=False, body=body)
    assert answer.status == 400
    assert lab.token not in logged(lab, start, "400 POST /nbdata/api/caches/clear")


def test_a_token_that_is_not_right_is_not_logged_either(lab: Lab) -> None:
    """It may be the right one of another server."""
    start, wrong = len(lab.log.read_text()), "0123456789abcdef0123456789abcdef"
    assert lab.ask(f"nbdata/api/jobs/abcd/cancel?token={wrong}", "POST", token=False).status == 403
    assert wrong not in logged(lab, start, "403 POST /nbdata/api/jobs/abcd/cancel")
