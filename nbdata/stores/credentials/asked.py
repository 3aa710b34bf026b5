"""Get credentials from other packages, in a short-lived process that has the client's environment.

Those packages read the environment of their process, but the agent serves clients with different environments. So the
agent never imports them for this. Secrets pass only through pipes, never on a command line.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from nbdata.redaction import remember_options
from nbdata.stores.objects import Stop
from nbdata.stores.uninterruptible import waited_for
from nbdata.threads import ForkLock

__all__ = ["EARLY", "ask"]

#: Ask again this long before credentials expire, in seconds.
EARLY = 300
# The longest wait for an answer, and how long an answer without an expiry is kept, in seconds.
_LONGEST, _KEPT = 60, 60
# How long an error is kept, in seconds. Many threads may ask at once, but a user who fixed the cause retries soon.
_ERROR_KEPT = 2
# Files that decide answers, unless a variable names another file. A changed file makes every answer stale.
_FILES = {
    "AWS_CONFIG_FILE": "~/.aws/config",
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
    "GOOGLE_APPLICATION_CREDENTIALS": "~/.config/gcloud/application_default_credentials.json",
    "AZURE_CONFIG_DIR": "~/.azure",
}

# The prefixes of the variables that each module's package reads.
_PREFIXES = {
    "aws_session": ("AWS_",),
    "azure_session": ("AZURE_", "MSI_", "IDENTITY_", "IMDS_"),
    "google_session": (
        "GOOGLE_",
        "CLOUDSDK_",
        "GCE_",
        "GCLOUD_",
        "AWS_",
    ),  # AWS_ is for workload identity federation
}

_answers: dict[str, tuple[float, list[int], dict[str, Any]]] = {}
_lock = ForkLock()


def ask(
    module: str, question: Any, env: Mapping[str, str], *, refused: str = "", stop: Stop | None = None
) -> dict[str, Any]:
    """Return the answer of a module of this package, cached until it nearly expires.

    Parameters
    ----------
    module : str
        The module's name. It reads the question from stdin and prints a JSON object. That may hold ``expires`` (seconds
        since the epoch) or ``error``.
    refused : str
        A ``token`` that the store refused. A cached answer with this token is not returned.
    stop : Stop, optional
        Ends the waiting; the answer is cached once it comes.

    Raises
    ------
    Cancelled
        If `stop` ended the waiting.
    """
    name = hashlib.sha256(json.dumps([module, question, sorted(env.items())]).encode()).hexdigest()
    cached = _cached(name, _times(env), refused)
    if cached is not None:
        return cached
    return waited_for(lambda: _asked(name, module, question, env, refused), stop)


def _cached(name: str, times: list[int], refused: str) -> dict[str, Any] | None:
    """Return the cached answer, if it is still valid and its token was not refused."""
    until, then, answer = _answers.get(name, (0.0, [], {}))
    valid = time.time() < until and then == times and not (refused and answer.get("token") == refused)
    return answer if valid else None


def _asked(name: str, module: str, question: Any, env: Mapping[str, str], refused: str) -> dict[str, Any]:
    """Run the module, and cache its answer. Another thread may have done so just now."""
    with _lock:
        times = _times(env)
        cached = _cached(name, times, refused)
        if cached is not None:
            return cached
        # Run by path, because the import path may have another nbdata.
        code = "import json, runpy, sys; sys.path[:] = json.loads(sys.argv.pop());"
        code += "runpy.run_path(sys.argv.pop())['main']()"
        path = os.path.join(os.path.dirname(__file__), f"{module}.py")
        try:
            run = subprocess.run(
                [sys.executable, "-c", code, path, json.dumps([p for p in sys.path if p])],
                env={name: value for name, value in env.items() if _concerns(module, name)},
                input=json.dumps(question).encode(),
                capture_output=True,
                timeout=_LONGEST,
                check=False,
                cwd="/",
            )
            answer: dict[str, Any] = json.loads(run.stdout)
        except subprocess.TimeoutExpired:
            answer = {"error": f"no credentials came within {_LONGEST} seconds"}
        except ValueError:
            answer = {"error": f"{module} ended without an answer"}
        remember_options(answer)
        expires = answer.get("expires")
        kept = _ERROR_KEPT if "error" in answer else _KEPT
        _answers[name] = (expires - EARLY if expires else time.time() + kept, times, answer)
        return answer


def _times(env: Mapping[str, str]) -> list[int]:
    """Return the modification times of the files that decide answers."""
    found = []
    for variable, usual in _FILES.items():
        path = env.get(variable) or usual
        if path.startswith("~/"):
            path = os.path.join(env.get("HOME") or os.path.expanduser("~"), path[2:])
        try:
            found.append(os.stat(path).st_mtime_ns)
        except OSError:
            found.append(0)
    return found


def _concerns(module: str, variable: str) -> bool:
    """Whether a module's package needs a variable. It must not get the secrets of other packages."""
    return variable.startswith((*_PREFIXES[module], "SSL_CERT_", "LD_LIBRARY_")) or (
        variable in ("HOME", "PATH", "REQUESTS_CA_BUNDLE") or variable.lower().endswith("_proxy")
    )
