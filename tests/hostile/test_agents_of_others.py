"""Commands of a user, who finds a process of another one in the place of the agent."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.hostile.users import ANNA, BERT, User, anna, bert, reachable
from tests.waiting import PATIENCE

__all__ = ["anna", "bert", "reachable"]

pytestmark = pytest.mark.needs("other users")

NAME = "from nbdata.runtime import endpoint; print(endpoint().name)"
# Listens, and says how many bytes the first client sent.
LISTEN = """
import os, socket, sys
os.umask(0)
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("listens", flush=True)
    client = listener.accept()[0]
    print(len(client.recv(1 << 20)), flush=True)
"""


def test_a_process_of_another_user_that_has_the_place_of_the_agent_is_sent_nothing(
    anna: User, bert: User, tmp_path: Path
) -> None:
    """Bert exchanged her runtime folder after she had looked at it; here, root does it for him."""
    name = anna.python(NAME).strip()
    (tmp_path / "a.txt").write_text("a")
    with bert.start(LISTEN, bert.root / "socket") as listening:
        assert listening.stdin is not None
        assert listening.stdout is not None
        assert listening.stdout.readline() == "listens\n"
        shutil.move(bert.root / "socket", anna.root / f"run/{name}.sock")
        done = anna.nbdata("pull", tmp_path / "a.txt", anna.root / "out/", NBDATA_HOST="agent")
        assert done.returncode == 1
        assert (
            f"a process of another user has the place of the agent, and was sent nothing: {anna.root}/run/"
            in done.stdout
        )
        assert f"(expected a process of user {ANNA}, got one of user {BERT})" in done.stdout
        assert "NBDATA_RUNTIME_DIR" in done.stdout
        assert listening.communicate(timeout=PATIENCE)[0] == "0\n"
    assert not os.path.exists(anna.root / "out")
    assert anna.nbdata("agent", "status").stdout.startswith("no agent runs")
