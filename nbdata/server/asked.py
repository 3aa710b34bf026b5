"""The Operations that the panel may run: which verbs, and which of their options."""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple

from nbdata.client.browsing import browsed
from nbdata.errors import BadOption
from nbdata.operation import Operation
from nbdata.redaction import redacted, scrub
from nbdata.report import Snapshot
from nbdata.server.bounds import Bounds
from nbdata.verbs import operation_from_dict

__all__ = ["LONGEST", "MAY_SET", "Asked", "asked"]

#: The options that the panel may set, by verb.
MAY_SET: dict[str, tuple[str, ...]] = {
    "du": ("place", "depth"),
    "cleanup": ("source", "caches", "stored", "only_here"),
    "quota": ("path", "limit"),
    "pull": ("source", "target", "include", "exclude", "verify"),
    "push": ("source", "target", "include", "exclude", "verify"),
    "copy": ("source", "target", "include", "exclude", "verify"),
    "md5check": ("source", "against", "include", "exclude"),
    "untar_volumes": ("source", "target", "members", "exclude", "verify", "list"),
    "pack": ("source", "target", "include", "exclude", "verify"),
    "delete": ("source", "include", "exclude", "yes"),
}
#: Most characters of a text of an option, and most texts of one.
LONGEST, _MOST_TEXTS = 8192, 100
# Verbs that cannot go through a connection, and those whose target can have one of its own.
_LOCAL = ("cleanup", "quota")
_BETWEEN = ("copy", "untar_volumes", "pack")
# Verbs whose plan is made by ``run``, with ``dry_run``; `nbdata.server.plans` plans the others.
_PLANNED = ("cleanup",)


class Asked(NamedTuple):
    """An Operation that the panel asks for; with `dry_run`, it asks only for the plan."""

    operation: Operation
    dry_run: bool
    connection: str = ""
    target_connection: str = ""

    def shown(self) -> dict[str, str]:
        """Return the line that a cell would say; where none can, it is empty, and ``why_no_line`` says why."""
        line = scrub(self.operation.line(redacted)) + " --dry-run" * self.dry_run
        for option, name in (("option", self.connection), ("target-option", self.target_connection)):
            if name:
                line += f" --{option} {shlex.quote(f'connection={name}')}"
        why = Snapshot("", self.operation.verb, command=line).why_no_command
        return {"line": "" if why else f"%{line}", "why_no_line": why}


def asked(body: object, bounds: Bounds) -> Asked:
    """Return what a request asks for.

    Parameters
    ----------
    body : object
        The JSON of an Operation (see `Operation.to_dict`), ``dry_run`` if only its plan is wanted, and the names of the
        ``connection`` to the store, and of the ``target_connection`` if the target has another one.
    bounds : Bounds
        The folders that may be named.

    Raises
    ------
    BadOption
        If the panel may not run this, or no such Operation exists.
    """
    if not isinstance(body, dict):
        raise BadOption("this is no operation", expected='{"verb": VERB, OPTION: VALUE, …}')
    options: dict[str, Any] = dict(body)
    through = {name: options.pop(name, "") for name in ("connection", "target_connection")}
    verb, dry_run = options.pop("verb", None), options.pop("dry_run", False)
    if not isinstance(verb, str) or verb not in MAY_SET:
        raise BadOption(f"the panel cannot run {verb!r}", expected=", ".join(MAY_SET))
    allowed = (*MAY_SET[verb], *("dry_run",) * (verb in _PLANNED))
    refused = {"connection": verb in _LOCAL, "target_connection": verb not in _BETWEEN}
    for name, value in through.items():
        if not isinstance(value, str) or (value and refused[name]):
            raise BadOption(f"the panel cannot set {name} of {verb}", expected=", ".join(allowed))
    if unknown := sorted(options.keys() - set(allowed)):
        raise BadOption(f"the panel cannot set {unknown[0]} of {verb}", expected=", ".join(allowed))
    if dry_run is not False and (dry_run is not True or verb not in _PLANNED):
        raise BadOption(f"the panel cannot set dry_run of {verb}", expected=", ".join(allowed))
    for name, value in options.items():
        _refuse_large(name, value)
    if options.get("list"):  # the panel lists archives of stores, and none of the disk
        browsed(str(options.get("source")))
        if "target" in options:
            raise BadOption(f"the panel cannot set target of {verb} --list")
    connection, target_connection = through.values()
    if connection:
        options["storage_options"] = {"connection": connection}
    if target_connection:
        options["target_options"] = {"connection": target_connection}
    try:
        operation = operation_from_dict({"verb": verb, **options})
    except (TypeError, ValueError) as error:  # an argument is missing, or is of another type
        raise BadOption(f"{verb}: {error}") from error
    bounds.refuse(operation)
    return Asked(operation, dry_run, connection, target_connection)


def _refuse_large(name: str, value: object) -> None:
    """Raise BadOption for a value that no person has typed."""
    texts = value if isinstance(value, list) else [value]
    if name == "source" and not isinstance(value, str):
        raise BadOption("the panel takes one source", expected="a path or a URL")
    if len(texts) > _MOST_TEXTS or any(isinstance(text, str) and len(text) > LONGEST for text in texts):
        raise BadOption(
            f"{name} is too long",
            expected=f"at most {_MOST_TEXTS} texts, each of at most {LONGEST} characters",
        )
