"""What a machine must offer for some tests beyond Python packages (mounts, a browser, …), and how this is checked.

A test declares a need with ``@pytest.mark.needs("mounts")``; a fixture declares it by requesting the fixture of that
name. If the need is not met, the test is not run. The end of the run states the number of such tests and the reasons
(`tests.conftest`). In CI (``CI=true``) such a test fails, unless the need is optional in CI.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.limited_disk import why_no_fuse
from tests.faults.small_disks import why_not
from tests.hostile.users import can_run_as
from tests.stores.emulators import azurite, node

__all__ = ["CAPABILITIES", "Capability", "system_chromium", "why_missing"]


def system_chromium() -> str | None:
    """Return the path of the system's Chromium if it runs. On Ubuntu it may be a stub that only suggests a snap."""
    path = shutil.which("chromium")
    works = path and subprocess.run([path, "--version"], capture_output=True).returncode == 0
    return path if works else None


def _chromium() -> bool:
    if system_chromium():
        return True
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        return Path(playwright.chromium.executable_path).exists()


def _mounts() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "none", folder], capture_output=True).returncode:
            return False
        subprocess.run(["umount", "-l", folder], check=True)
    return True


def _mount() -> bool:
    """True if nbdata can mount: root by itself where it may, and others by fusermount3."""
    return os.access("/dev/fuse", os.R_OK | os.W_OK) and (bool(shutil.which("fusermount3")) or _mounts())


def _programs(*names: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(name) for name in names)


def _unshare() -> bool:
    command = ["unshare", "--pid", "--uts", "--fork", "--mount-proc", "true"]
    return subprocess.run(command, capture_output=True).returncode == 0 if shutil.which("unshare") else False


@dataclass(frozen=True)
class Capability:
    """Something that a machine may offer.

    Attributes
    ----------
    missing : str
        The message if the machine does not offer it.
    is_there : callable
        Returns True if the machine offers it.
    in_ci : bool
        True if CI must offer it.
    """

    missing: str
    is_there: Callable[[], bool]
    in_ci: bool = True


CAPABILITIES = {
    "aistore sdk": Capability(
        "the SDK of AIStore is not installed; `make test` installs it",
        lambda: importlib.util.find_spec("aistore") is not None,
    ),
    "azurite": Capability(
        "Azurite is not installed; `make test` installs it", lambda: Path(azurite()).exists() and bool(node())
    ),
    "bash": Capability("there is no bash", _programs("bash")),
    "btrfs": Capability(
        "no disk of btrfs can be made and mounted", lambda: not why_not("btrfs, qgroup"), in_ci=False
    ),
    "chromium": Capability("there is no Chromium; tests/browser/install-chromium installs one", _chromium),
    "coreutils": Capability("there are no GNU coreutils", _programs("md5sum", "cksum")),
    "ext4": Capability("no disk of ext4 can be made and mounted", lambda: not why_not("ext4"), in_ci=False),
    "fuse": Capability(
        "no disk of the tests can be mounted (FUSE); tests/faults/install-fuse installs its library",
        lambda: not why_no_fuse(),
        in_ci=False,
    ),
    "mount": Capability("nbdata cannot mount: /dev/fuse is missing, or the right to use it", _mount),
    "mounts": Capability("nobody but root may mount disks", _mounts),
    "namespaces": Capability("there is no right to make name spaces (unshare)", _unshare),
    "openssl": Capability("there is no openssl", _programs("openssl")),
    "other users": Capability("nobody but root may run commands as other users", lambda: can_run_as(54_321)),
    "setpriv": Capability(
        "root reads everything, and there is no setpriv to prevent it",
        lambda: os.geteuid() != 0 or bool(shutil.which("setpriv")),
    ),
}

_COMPRESS_JAR = "/usr/share/java/commons-compress.jar"


def _java() -> bool:
    return Path(_COMPRESS_JAR).exists() and all(map(shutil.which, ("java", "javac")))


# Programs that make the archives that tests unpack and the lists of checksums that they read, or that read a mount.
for _name in (
    "ar",
    "bsdtar",
    "busybox",
    "cksfv",
    "cpio",
    "7zz",
    "dpkg-deb",
    "git",
    "go",
    "hashdeep",
    "java",
    "npm",
    "pax",
    "perl",
    "rhash",
    "rsync",
    "zstd",
    "zip",
    "unzip",
    "lz4",
):
    CAPABILITIES[_name] = Capability(
        f"there is no {_name}; tests/archives/corpus/install-archivers installs it",
        _java if _name == "java" else _programs(_name),
    )


@functools.cache
def _is_there(name: str) -> bool:
    return CAPABILITIES[name].is_there()


def why_missing(needed: Iterable[str], *, in_ci: bool = False) -> str:
    """Return why a test with these needs cannot run, or ''. With `in_ci`, consider only needs that CI must meet."""
    missing = [CAPABILITIES[name] for name in sorted(set(needed)) if not _is_there(name)]
    return "; ".join(one.missing for one in missing if one.in_ci or not in_ci)
