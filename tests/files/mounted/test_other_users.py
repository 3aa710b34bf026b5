"""A user who is not root mounts by fusermount3, and nobody else sees what is in it.

In many containers /dev/fuse is for root alone. So these tests give it to all in a name space of their own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nbdata.demo.server import EmbeddedServer
from tests.hostile.users import ANNA, BERT, User, anna, reachable
from tests.waiting import PATIENCE

__all__ = ["anna", "reachable"]

pytestmark = [pytest.mark.needs("mount", "namespaces", "other users"), pytest.mark.long]

# fusermount3 wants to know the name of the user; `as` runs a command as one.
_INSIDE = """
PATH="$BIN:$PATH"
mknod fuse c 10 229 && chmod "$MODE" fuse && mount --bind fuse /dev/fuse || exit 99
cp /etc/passwd . && echo "anna:x:$ANNA:$ANNA::/:/bin/sh" >>passwd && mount --bind passwd /etc/passwd || exit 99
as() { setpriv --reuid=$1 --regid=$1 --clear-groups --inh-caps=+$READ --ambient-caps=+$READ "${@:2}"; }
"""


def _inside(user: User, lines: str, mode: str = "0666") -> str:
    """Run lines of bash as root where /dev/fuse has this mode; return what they say."""
    told = {"MODE": mode, "BIN": str(Path(sys.executable).parent), "ANNA": str(ANNA), "BERT": str(BERT)}
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", _INSIDE + lines],
        cwd=user.root, env={**user.environment(), **told, "READ": "dac_read_search"}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_user_mounts_what_nobody_else_sees(
    s3: EmbeddedServer, put: Callable[[dict[str, bytes]], str], anna: User
) -> None:
    said = _inside(
        anna,
        f"""
        as $ANNA nbdata mount {put({"d/a.txt": b"secret"})}d mine
        as $ANNA cat mine/a.txt; as $ANNA stat -c ' %u %a' mine/a.txt
        as $BERT cat mine/a.txt; cat mine/a.txt; ls mine
        as $ANNA nbdata mount
        as $ANNA nbdata unmount mine; ls -A mine; echo ended
        """,
    )
    assert "secret 54321 444\n" in said
    assert said.count("Permission denied") == 3, said  # one of another user, and root's two
    assert "mounts: 1" in said
    assert said.endswith("is unmounted\nended\n"), said


def test_what_the_system_does_not_allow_is_said(
    s3: EmbeddedServer, put: Callable[[dict[str, bytes]], str], anna: User
) -> None:
    url = put({"d/a.txt": b"secret"}) + "d"
    for mode, options, told in (
        ("0600", "", "mount needs /dev/fuse, which is not for this user"),
        ("0666", "--allow-other", "user_allow_other"),
    ):
        said = _inside(anna, f"as $ANNA nbdata mount {options} {url} mine; ls -A mine; rm -f fuse", mode)
        assert told in said, said
        assert "Traceback" not in said
