"""The Operations that the panel may run: which verbs, and which of their options."""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple

from nbdata.client.browsing import browsed
from nbdata.errors import BadOption
from nbdata.operation import Operation
from nbdata.redaction import redacted, scrub
from nbdata.report import Snapshot
from nbdata.verbs import operation_from_dict

__all__ = ["Asked", "asked"]

#: The options that the panel may set, by verb.
MAY_SET: dict[str, tuple[str, ...]] = {
    "du": ("place", "depth"),
    "cleanup": ("source", "caches", "stored", "only_here"),
    "quota": ("path", "limit"),
    "pull": ("source", "target", "max_files"),
    "untar_volumes": ("source", "list"),
}
# Verbs that may go through a connection, whose name is no option of its own.
_CONNECTING = ("pull", "untar_volumes")
# Verbs whose plan the panel shows.
_PLANNED = ("cleanup", "pull")


class Asked(NamedTuple):
    """An Operation that the panel asks for; with `dry_run`, it asks only for the plan."""

    operation: Operation
    dry_run: bool
    connection: str = ""

    def shown(self) -> dict[str, str]:
        """Return the line that a cell would say; where none can, it is empty, and ``why_no_line`` says why."""
        line = scrub(self.operation.line(redacted)) + " --dry-run" * self.dry_run
        if self.connection:
            line += f" --option {shlex.quote(f'connection={self.connection}')}"
        why = Snapshot("", self.operation.verb, command=line).why_no_command
        return {"line": "" if why else f"%{line}", "why_no_line": why}


def asked(body: object) -> Asked:
    """Return what a request asks for.

    Parameters
    ----------
    body : object
        The JSON of an Operation (see `Operation.to_dict`), ``dry_run`` if only its plan is wanted, and the name of the
        ``connection`` to the store.

    Raises
    ------
    BadOption
        If the panel may not run this, or no such Operation exists.
    """
    if not isinstance(body, dict):
        raise BadOption("this is no operation", expected='{"verb": VERB, OPTION: VALUE, …}')
    options: dict[str, Any] = dict(body)
    connection = options.pop("connection", "")
    verb, dry_run = options.pop("verb", None), options.pop("dry_run", False)
    if not isinstance(verb, str) or verb not in MAY_SET:
        raise BadOption(f"the panel cannot run {verb!r}", expected=", ".join(MAY_SET))
    allowed = (*MAY_SET[verb], *("dry_run",) * (verb in _PLANNED))
    if not isinstance(connection, str) or (connection and verb not in _CONNECTING):
        raise BadOption(f"the panel cannot set connection of {verb}", expected=", ".join(allowed))
    if unknown := sorted(options.keys() - set(allowed)):
        raise BadOption(f"the panel cannot set {unknown[0]} of {verb}", expected=", ".join(allowed))
    if dry_run is not False and (dry_run is not True or verb not in _PLANNED):
        raise BadOption(f"the panel cannot set dry_run of {verb}", expected=", ".join(allowed))
    if verb == "untar_volumes":  # the panel lists archives of stores, and unpacks none
        browsed(str(options.get("source")))
    if connection:
        options["storage_options"] = {"connection": connection}
    try:
        return Asked(operation_from_dict({"verb": verb, **options}), dry_run, connection)
    except (TypeError, ValueError) as error:  # an argument is missing, or is of another type
        raise BadOption(f"{verb}: {error}") from error
