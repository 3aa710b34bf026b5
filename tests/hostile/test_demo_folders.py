"""``nbdata demo`` uses no folder that another user has made, or can exchange for another one."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

import pytest

from nbdata.other_users import changeable_by_others
from tests.hostile.test_acls import listed
from tests.hostile.users import ANNA, BERT, User, anna, bert, reachable

__all__ = ["anna", "bert", "reachable"]

pytestmark = pytest.mark.needs("other users")

DEMO = "nbdata demo --server moto --size 1MB --small"


def made(folder: Path, owner: int, mode: int) -> Path:
    """Make a folder of a user."""
    folder.mkdir()
    os.chown(folder, owner, owner)
    folder.chmod(mode)
    return folder


def demo(user: User, folder: Path) -> str:
    """Run the demo in a folder, which must be refused, and return its output."""
    program = f"cd {folder} && exec {Path(sys.executable).parent}/{DEMO}"
    done = user.run(["sh", "-c", program])
    assert done.returncode != 0, done.stdout
    assert "internal error" not in done.stdout, done.stdout
    return done.stdout


def test_a_link_of_another_user_empties_no_folder(tmp_path: Path, anna: User, bert: User) -> None:
    shared = made(tmp_path / "shared", 0, 0o1777)
    anna.run(["sh", "-c", "mkdir home/tmp; echo mine > home/tmp/notes"])
    bert.run(
        ["sh", "-c", f"mkdir -m 777 {shared}/demo-data; ln -s {anna.root}/home {shared}/demo-data/server"]
    )
    assert "belongs to another user" in demo(anna, shared)
    assert os.listdir(anna.root / "home") == ["tmp"]
    assert (anna.root / "home/tmp/notes").read_text() == "mine\n"


@pytest.mark.in_ci(1)
@pytest.mark.parametrize(("owner", "mode"), [(BERT, 0o1777), (BERT, 0o755), (ANNA, 0o777), (0, 0o777)])
def test_a_folder_that_another_user_can_exchange_is_refused(
    tmp_path: Path, anna: User, owner: int, mode: int
) -> None:
    shared = made(tmp_path / "shared", owner, mode)
    made(shared / "demo-data", ANNA, 0o700)
    assert "other users could exchange" in demo(anna, shared)
    assert os.listdir(shared / "demo-data") == []


def test_who_can_change_where_a_path_leads(tmp_path: Path) -> None:
    """As root, whose umask keeps others out."""
    inner = tmp_path / "outer/inner"
    inner.mkdir(parents=True, mode=0o700)
    others = pwd.getpwnam("daemon").pw_gid
    expected = {
        (0o755, 0): None,
        (0o1777, 0): None,
        (0o777, 0): "outer",
        (0o775, others): "outer",
        (0o2775, 0): None,  # a group of one, as in many images
    }
    for (mode, group), folder in expected.items():
        os.chown(inner.parent, 0, group)
        inner.parent.chmod(mode)
        assert changeable_by_others(str(inner)) == (str(tmp_path / folder) if folder else None), oct(mode)
    os.setxattr(inner.parent, "system.posix_acl_access", listed(BERT, 7))
    assert changeable_by_others(str(inner)) == str(inner.parent), "its list names somebody else"
    os.removexattr(inner.parent, "system.posix_acl_access")
    inner.parent.chmod(0o755)
    inner.chmod(0o1777)
    assert changeable_by_others(str(inner)) == str(inner)
    before = os.umask(0)
    try:
        assert changeable_by_others(str(inner)) is None, "what is made there is for everybody"
    finally:
        os.umask(before)
    inner.chmod(0o700)
    os.chown(inner.parent, BERT, BERT)
    assert changeable_by_others(str(inner)) == str(inner.parent)
    (tmp_path / "link").symlink_to(inner)
    assert changeable_by_others(str(tmp_path / "link")) == str(inner.parent)
    theirs = made(tmp_path / "theirs", BERT, 0o755)
    (tmp_path / "mine").mkdir()
    (theirs / "link").symlink_to(tmp_path / "mine")
    assert changeable_by_others(str(theirs / "link")) == str(theirs)
