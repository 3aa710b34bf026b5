"""The context that a client sends along with an operation: its folder, umask, environment and credentials."""

from __future__ import annotations

import os
import sys
from typing import Any

from nbdata.connections import connected
from nbdata.operation import Context, Operation
from nbdata.paths import is_url, working_folder
from nbdata.redaction import remember_options
from nbdata.runtime import state_folder
from nbdata.verbs.ends import urls_of_options

__all__ = ["bindings_of", "capture", "notebook_path", "only_here", "own", "owner_name"]

_SENT = ("AWS_", "GOOGLE_", "AZURE_", "OBS_", "AIS_", "DASK_", "SSL_CERT_", "NBDATA_")
_SENT_NAMES = {"REQUESTS_CA_BUNDLE", "HOME", "PATH", "NO_PROXY", "no_proxy", "STORAGE_EMULATOR_HOST"}

# Characters of the name of a notebook or script.
_OWNER = 80


def capture(operation: Operation) -> Context:
    """Return this process's context for an operation."""
    umask = _umask()
    state, urls = state_folder(), urls_of_options(operation)
    given = {
        flag: getattr(operation, name, None) or {}
        for flag, name in (("--option", "storage_options"), ("--target-option", "target_options"))
    }
    options = {flag: connected(named, urls[flag], state) for flag, named in given.items()}
    filesystem = getattr(operation, "fs", None)
    if filesystem is not None:
        remember_options({"fs": getattr(filesystem, "storage_options", None)})
    return Context(
        cwd=working_folder(),
        umask=umask,
        env={
            n: v
            for n, v in os.environ.items()
            if n.startswith(_SENT) or n in _SENT_NAMES or n.lower().endswith("_proxy")
        },
        storage_options=options["--option"][0],
        target_options=options["--target-option"][0],
        connections={
            flag: [found.name, *(name for name in found.options if name not in given[flag])]
            for flag, (_, found) in options.items()
            if found is not None
        },
        fsspec_conf=_fsspec_conf(operation),
        filesystem=None if filesystem is None or only_here(operation) else _described(filesystem),
        state_dir=state,
        target_id=_target_id(operation.local_target()),
        here=operation.here,
        owner=owner_name(),
        notebook=notebook_path(),
        origins=tuple(sorted(operation.origins())),
        allow_html=getattr(operation, "allow_html", False),
    )


# What `own` was told last, if anything.
_own: list[str] = []


def own(name: str) -> None:
    """Have lists name this as the owner of what this process begins from now on."""
    _own[:] = [name[:_OWNER]]


def owner_name() -> str:
    """Return the owner of a job for lists: the notebook or the script; if neither is known, the process."""
    if _own:
        return _own[0]
    if "ipykernel" in sys.modules:
        return os.path.basename(_session_name())[:_OWNER] or f"kernel {os.getpid()}"
    script = os.path.basename(sys.argv[0]) if sys.argv else ""
    if script in ("nbdata", "__main__.py"):
        return f"terminal, process {os.getpid()}"
    return script[:_OWNER] if script.endswith(".py") else f"process {os.getpid()}"


def notebook_path() -> str:
    """Return the absolute path of the notebook whose kernel this process is; empty if that is not known."""
    path = _session_name()
    return path if os.path.isabs(path) and path.endswith(".ipynb") else ""


def _session_name() -> str:
    """Return what the kernel was started for, mostly a notebook's path; empty outside a kernel.

    Jupyter tells a kernel the path when it starts it, and VS Code puts it among the variables.
    """
    if "ipykernel" not in sys.modules:
        return ""  # a script that a notebook has started inherits the environment
    shell = getattr(sys.modules.get("IPython.core.interactiveshell"), "InteractiveShell", None)
    names = shell.instance().user_ns if shell is not None and shell.initialized() else {}
    return str(os.environ.get("JPY_SESSION_NAME") or names.get("__vsc_ipynb_file__") or "")


def bindings_of(operation: Operation) -> dict[str, object]:
    """Return the objects of this process that the engine needs if it runs here."""
    fs = getattr(operation, "fs", None)
    return {} if fs is None else {"fs": fs}


def only_here(operation: Operation) -> bool:
    """True if only this process can carry the operation out.

    This holds for ``memory://``, for a client of a cluster, and for a file system object that cannot be rebuilt from
    JSON. Nothing is ever pickled.
    """
    if not isinstance(getattr(operation, "cluster", ""), (str, type(None))):
        return True
    if any(place.startswith("memory://") for place in operation.places()):
        return True
    fs = getattr(operation, "fs", None)
    return fs is not None and _described(fs) is None


def _described(fs: Any) -> dict[str, Any] | None:
    """Return a file system as JSON-able data, if its protocol is registered and it holds nothing else."""
    import json

    import fsspec

    protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    if protocol == "memory":
        return None
    try:
        if fsspec.get_filesystem_class(protocol) is not type(fs):
            return None
        description = {"protocol": protocol, "args": list(fs.storage_args), **fs.storage_options}
        return dict(json.loads(json.dumps(description)))
    except (TypeError, ValueError, ImportError, AttributeError):
        return None


def _fsspec_conf(operation: Operation) -> dict[str, Any]:
    """Return fsspec's configuration for the protocols of an operation; empty if nothing is configured."""
    protocols = {p.split("://")[0] for p in operation.places() if is_url(p)}
    home = os.environ.get("FSSPEC_CONFIG_DIR") or os.path.expanduser("~/.config/fsspec")
    if not protocols or not (
        "fsspec" in sys.modules or os.path.isdir(home) or any(n.startswith("FSSPEC") for n in os.environ)
    ):
        return {}
    from fsspec.config import conf

    return {p: dict(conf[p]) for p in protocols if isinstance(conf.get(p), dict)}


def _umask() -> int:
    # Linux shows the umask in a file. Reading it with os.umask would set it, and race with other threads.
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1], 8) for line in lines if line.startswith("Umask:"))
    except (OSError, StopIteration):
        umask = os.umask(0o022)
        os.umask(umask)
        return umask


def _target_id(target: str | None) -> tuple[str, int, int] | None:
    if target is None:
        return None
    at = target.rstrip("/") or "/"
    while not os.path.exists(at):
        at = os.path.dirname(at)
    status = os.stat(at)
    return at, status.st_dev, status.st_ino
