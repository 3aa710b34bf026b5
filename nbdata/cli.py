"""The command line: ``nbdata VERB …``.

Results go to stdout, progress and errors to stderr. Exit status: 0 done, 1 failures, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TextIO

from nbdata.client.kept_lists import keep_list, stdin_named
from nbdata.display import TextDisplay
from nbdata.early import leave_interrupts
from nbdata.errors import BadOption, NbdataError, TransferFailed
from nbdata.interrupts import unanswered
from nbdata.operation import Operation, slots
from nbdata.option import Option
from nbdata.protocols import Job
from nbdata.rendering import member_cells, printable
from nbdata.report import Plan, Report, Row
from nbdata.suggestions import suggest_verb
from nbdata.verbs import VERBS
from nbdata.verbs.cache_stream import CacheStream
from nbdata.verbs.delete import Delete
from nbdata.verbs.listing import Listing, Ls
from nbdata.verbs.mount import Mount
from nbdata.verbs.pack import STDOUT
from nbdata.verbs.parsing import help_text, parse, written_secrets
from nbdata.version import __version__

__all__ = ["main"]

# What became of an object that was listed; see `nbdata.engine.job.outcomes`.
_MEMBER = "members"
_EXTRA = {"json": Option("Print the Report as JSON on stdout; progress goes to stderr.", kind="flag")}
_ROWS = {"json": Option("Print each row as a line of JSON (JSON Lines).", kind="flag")}
_LONG = {
    "long": Option(
        "Print size, time and name also if the output goes to another program.", kind="flag", short="l"
    )
}
_RUN = {
    "run": Option(
        "Run COMMAND once for each item, without a shell; {} stands for the item's path, which else comes last. The "
        "first one that fails ends the stream.",
        metavar="COMMAND",
    )
}
_EXAMPLES = {
    "cache_stream": (
        "cache_stream s3://bucket/video --max-size 1g --run 'python train.py {}'",
        "cache_stream s3://bucket/images --by file --include '*.jpg' --max-size 2GB --run 'identify {}'",
        "cache_stream s3://bucket/images --by sample --dry-run",
    )
}
_CARRIED = "The agent runs it, also after this terminal closes. It ends with this container or batch job."
_MORE = {
    "agent": "Show or stop the agent, the process that does the work: status, stop, log.",
    "demo": "Run a complete example on an embedded S3 server; --serve: only start the server, to try nbdata on.",
    "completion": 'Set up Tab completion of options and paths: eval "$(nbdata completion bash)" (or zsh).',
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    shown_before, output, errors = slots.display, sys.stdout, sys.stderr
    try:
        # Both are None if they are closed.
        sys.stdout = _Output(output or open(os.devnull, "w"))  # noqa: SIM115
        sys.stderr = errors or open(os.devnull, "w")  # noqa: SIM115
        # A hang-up ends only this process: the agent's job continues.
        leave_interrupts()
        return _told(words)
    except KeyboardInterrupt as pressed:
        if pressed_text := unanswered(pressed):
            print(f"nbdata: {pressed_text}", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _drop_output()  # the reader of our output is gone
        return 1
    finally:
        # The caller of this function gets its own output back.
        slots.display, sys.stdout, sys.stderr = shown_before, output, errors


def _drop_output() -> None:
    """Discard the output that is left: flushing it at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Output:
    """Wraps standard output and notes write errors. A pipe without a reader is not our error.

    Characters that the terminal's encoding lacks are written as escapes, as Python does on standard error.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with self._told():
            try:
                return self._stream.write(text)
            except UnicodeEncodeError as error:
                return self._stream.write(
                    text.encode(error.encoding, "backslashreplace").decode(error.encoding)
                )

    def flush(self) -> None:
        with self._told():
            self._stream.flush()

    @staticmethod
    @contextlib.contextmanager
    def _told() -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            _drop_output()
            why = os.strerror(error.errno or 0)
            raise NbdataError(f"standard output cannot be written ({why})") from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _told(words: list[str]) -> int:
    """Run one command, print any error and return the exit status."""
    try:
        try:
            return _run(words)
        finally:
            sys.stdout.flush()  # at Python's exit it would be too late to report an error
    except NbdataError as error:
        first, *more = error.lines
        first = first if first.startswith("nbdata ") else f"nbdata: {first}"
        print("\n".join(map(printable, (first, *more))), file=sys.stderr)
        return 2 if isinstance(error, BadOption) else 1


def _run(words: list[str]) -> int:
    if len(words) == 2 and words[0] == "help":
        words = [words[1], "--help"]
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        print(f"nbdata {__version__}")
        return 0
    verb, *rest = words
    if verb == "agent":
        from nbdata.client.agents import main as agent_main

        return agent_main(rest)
    if verb == "demo":
        from nbdata.demo.run import main as demo_main

        return demo_main(rest)
    if verb == "completion":
        from nbdata.shell_completion import answer

        print(answer(rest, _extra, list(_MORE)))
        return 0
    cls = VERBS.get(verb.replace("-", "_"))
    if cls is None:
        raise BadOption(f"there is no verb {verb!r}", remedy=suggest_verb(verb, [*VERBS, *_MORE]))
    return _verb(cls, rest)


def _overview() -> str:
    width = max(map(len, [*VERBS, *_MORE]))
    lines = [
        f"  {name:{width}}  {text}"
        for name, text in [*((n, c.summary) for n, c in VERBS.items()), *_MORE.items()]
    ]
    return "\n".join(
        ["usage: nbdata VERB … [options]", "", *lines, "", "nbdata VERB --help explains a verb."]
    )


def _extra(cls: type[Operation]) -> dict[str, Option]:
    """Return the options that the command line adds to a verb."""
    if issubclass(cls, Listing):
        return {**_ROWS, **_LONG} if cls is Ls else _ROWS
    return {**_RUN, **_EXTRA} if cls is CacheStream else _EXTRA


def _verb(cls: type[Operation], words: list[str]) -> int:
    prog = f"nbdata {cls.verb}"
    extra = _extra(cls)
    for written in written_secrets(words):
        print(
            f"nbdata: every user of this machine can see {written}=… in the list of processes; "
            f"{written}=env:NAME takes it from the environment",
            file=sys.stderr,
        )
    operation, face = parse(cls, stdin_named(words), prog=prog, extra=extra, streams=True)
    if operation is None:
        print(help_text(cls, prog, extra, _EXAMPLES.get(cls.verb)))
        return 0
    operation = keep_list(operation)
    if getattr(operation, "target", None) == STDOUT:
        if face["json"]:
            raise BadOption(
                "--json and a TARGET of - exclude each other: both are standard output",
                remedy="Leave one out",
            )
        with contextlib.redirect_stdout(sys.stderr):  # standard output belongs to the tar
            return _done(operation, face)
    return _done(operation, face)


def _done(operation: Operation, face: dict[str, Any]) -> int:
    """Carry an operation out, and print its result."""
    cls = type(operation)
    if isinstance(operation, Mount):  # it stays until it is unmounted
        operation = replace(operation, keep=True)
    as_json, quiet = bool(face["json"]), bool(face["quiet"])
    display = TextDisplay(result=False)
    slots.display = lambda: display
    if face.get("dry_run"):
        planned = operation.plan()
        _print(planned, as_json=as_json, quiet=quiet)
        return 1 if isinstance(planned, Plan) and (planned.empty or not planned.fits) else 0
    if isinstance(operation, Delete) and not (operation.yes or as_json):
        operation = _asked(operation)
    begun: Job | None = None
    if face.get("background"):
        if os.environ.get("NBDATA_HOST") == "inline":  # the job would end with this process, which ends now
            raise BadOption(
                "-b needs the agent, but NBDATA_HOST=inline works without it", remedy="Leave one of them out"
            )
        from nbdata.client.remote import AgentJob

        begun = operation.start()
        if isinstance(begun, AgentJob):
            if as_json:
                print(json.dumps(begun.snapshot().to_dict()))
            elif not quiet:
                print(f"{begun!r}" + (f": {begun.attached}" if begun.attached else ""))
                print(
                    f"{_CARRIED} `nbdata transfers {begun.id} --wait` shows its progress, `--cancel` stops it."
                )
            return 0
    try:
        if cls is CacheStream:
            result = _each(operation, face["run"], quiet, as_json=as_json)
        elif begun is not None:  # no agent can run it, and it would end with this process
            result = display.follow(begun, quiet=quiet)
        else:
            result = operation.run(quiet=quiet)
    except TransferFailed as error:
        report = error.report
        if isinstance(operation, Listing) and isinstance(report, Report) and (as_json or not quiet):
            _print_listing(
                operation, report, as_json=as_json, people=sys.stdout.isatty() or bool(face.get("long"))
            )
        elif isinstance(report, Report) and (as_json or (report.tables and not quiet)):
            _print(report, as_json=as_json, quiet=False, listed=getattr(operation, "list", False))
        elif isinstance(report, Report) and not quiet and report.notes:
            print("\n".join(f"  {printable(note)}" for note in report.notes), file=sys.stderr)
        raise
    listed = getattr(operation, "list", False) and isinstance(result, Report)
    if isinstance(operation, Listing) and isinstance(result, Report):
        if as_json or not quiet:
            _print_listing(
                operation, result, as_json=as_json, people=sys.stdout.isatty() or bool(face.get("long"))
            )
    elif listed and not as_json and not quiet:
        # The names are the result: print all of them, one per line. A terminal shows more columns, a pipe does not.
        for row in result.rows:
            print(_member_line(row) if sys.stdout.isatty() else printable(row.path))
        print(result.line, file=sys.stderr)
    elif cls is CacheStream and not as_json and not quiet:
        print(result.text(), file=sys.stderr)  # stdout belongs to the command
    else:
        _print(result, as_json=as_json, quiet=quiet, listed=listed)
    return 1 if isinstance(result, Report) and not result.ok else 0


def _asked(operation: Delete) -> Delete:
    """Ask in a terminal whether to delete; elsewhere the operation itself says what is missing."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        return operation
    planned = operation.plan()
    _print(planned, as_json=False, quiet=False)
    if not planned.actions:
        return operation
    sys.stdout.flush()
    print("Delete them? It cannot be undone. [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NbdataError("nothing was deleted")
    return replace(operation, yes=True)


def _print_listing(operation: Listing, report: Report, *, as_json: bool, people: bool) -> None:
    """Print all rows on stdout without holding any in memory; notes about them go to stderr."""
    for line in operation.lines(report, as_json=as_json, people=people):
        print(line)
    if not as_json:
        print("\n".join([report.line, *(f"  {printable(note)}" for note in report.notes)]), file=sys.stderr)


def _member_line(row: Row) -> str:
    """Format a member for people: size, time and name."""
    size, at = member_cells(row.size, row.detail.get("kind", "file"), row.detail.get("mtime", 0))
    return f"{size:>9}  {at:20}  {printable(row.path)}"


def _each(operation: Operation, command: str | None, quiet: bool, *, as_json: bool) -> Report:
    """Run a command for each item of a stream; with `as_json`, stdout carries only the Report."""
    try:
        words = shlex.split(command or "")
    except ValueError as error:
        raise BadOption(f"--run: {str(error).lower()}", remedy="Close the quotes") from None
    if not words:
        raise BadOption(
            "nbdata cache_stream needs --run COMMAND: an item is deleted when the next one comes",
            remedy="For example --run 'python train.py {}'",
        )
    stream, out = operation.run(quiet=quiet), sys.stderr if as_json else None
    try:
        for path, _ in stream:
            filled_in = [word.replace("{}", path) for word in words]
            try:
                status = subprocess.run(
                    filled_in if filled_in != words else [*words, path], stdout=out, check=False
                ).returncode
            except OSError as error:
                raise BadOption(
                    f"--run: {words[0]} cannot be run ({os.strerror(error.errno or 0)})"
                ) from error
            if status:
                raise NbdataError(f"{words[0]} ended with status {status}", path=path)
    except KeyboardInterrupt:
        if not quiet and stream.report is not None:
            print(f"{stream.report.line}; interrupted", file=sys.stderr)
        raise
    report: Report = stream.report
    return report


def _print(result: Any, *, as_json: bool, quiet: bool, listed: bool = False) -> None:
    if as_json and listed:
        _print_members(result)
    elif as_json:
        print(json.dumps([s.to_dict() for s in result] if isinstance(result, list) else result.to_dict()))
    elif not quiet:
        print(result.text() if hasattr(result, "text") else repr(result))


def _print_members(report: Report) -> None:
    """The Report of a listing as one JSON object that has all members, which are written as they are fetched."""
    sys.stdout.write(f'{json.dumps(report.to_dict())[:-1]}, "members": [')
    between = ""
    for row in report.rows:
        if row.action == _MEMBER:
            sys.stdout.write(between + json.dumps({"name": row.path, "size": row.size, **row.detail}))
            between = ", "
    print("]}")
