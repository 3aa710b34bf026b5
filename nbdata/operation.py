"""Operation, and the protocols Host, Job and Display that carry it out and show it.

An Operation is a frozen, validated set of options. Each option is declared once, with its help
text; the magic, the command line, the Python function and the panel's form are made from that
declaration. Nothing here knows a socket: which Host and which Display are used is put into two slots
by ``nbdata/__init__.py`` (and by ``%load_ext nbdata``).
"""

from __future__ import annotations

import difflib
import functools
import glob
import hashlib
import inspect
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Protocol, TypeVar

from nbdata.errors import BadOption
from nbdata.paths import canonical
from nbdata.redaction import Hidden, redacted, remember_options
from nbdata.report import Plan, Report, Snapshot
from nbdata.sizes import parse_size

__all__ = [
    "Context",
    "Display",
    "Host",
    "Item",
    "Job",
    "Operation",
    "Option",
    "Waiting",
    "argument",
    "function_of",
    "option",
    "options_of",
    "slots",
    "suggest",
]


@dataclass(frozen=True)
class Option:
    """The declaration of one option: all that faces need to offer, parse and explain it.

    Attributes
    ----------
    help : str
        One sentence for ``%verb?`` and ``--help``.
    kind : str
        ``text``, ``place`` (a path or URL), ``path`` (local), ``flag``, ``size``, ``count``,
        ``texts`` (repeatable), ``sample``, ``pairs`` (KEY=VALUE, repeatable) or ``optional`` (a flag that may
        have a value: True, or that text).
    identity : bool
        Whether it decides which bytes end where, and so belongs to what *the same line* means.
    short : str
        One-letter spelling, or empty.
    choices : tuple of str
        The allowed values, or empty.
    metavar : str
        How the value is named in help texts.
    positional : bool
        Given by position, not by name.
    binding : bool
        Stays beside the Operation: it is no part of its JSON, its repr or its identity, because it
        is secret (storage options) or lives only in this process (a file system object).
    """

    help: str
    kind: str = "text"
    identity: bool = True
    short: str = ""
    choices: tuple[str, ...] = ()
    metavar: str = ""
    positional: bool = False
    binding: bool = False


def argument(help: str, *, default: Any = MISSING, kind: str = "place", metavar: str = "") -> Any:  # noqa: A002
    """Declare a positional argument of an Operation; without a default it is required."""
    return field(
        default=default, metadata={"option": Option(help, kind=kind, metavar=metavar, positional=True)}
    )


def option(default: Any, help: str, **declaration: Any) -> Any:  # noqa: A002
    """Declare a keyword-only option of an Operation; see `Option` for the declaration."""
    declared = Option(help, **declaration)
    hidden = declared.binding
    return field(
        default=default, kw_only=True, repr=not hidden, compare=not hidden, metadata={"option": declared}
    )


def options_of(cls: type[Operation]) -> dict[str, tuple[Field[Any], Option]]:
    """The declared options of a verb by field name, positional ones first."""
    found = {f.name: (f, f.metadata["option"]) for f in fields(cls) if "option" in f.metadata}
    return dict(sorted(found.items(), key=lambda item: not item[1][1].positional))


def suggest(word: str, known: list[str]) -> str:
    """A remedy for a misspelt word: the nearest known one, or the list."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"Did you mean {near[0]}?" if near else f"Known are {', '.join(known)}"


@dataclass(frozen=True)
class Operation:
    """Base of all verbs: options that are decided before anything is done.

    Subclasses set `verb` and declare fields with `argument` and `option`. Construction validates and
    makes values canonical, so that an Operation that exists makes sense, and two ways to write
    the same thing compare equal.
    """

    verb: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    examples: ClassVar[tuple[str, ...]] = ()
    # A question rather than work: answered, but kept in no list of jobs.
    query: ClassVar[bool] = False
    # Worth nothing without the process that asked for it, and ends with its connection.
    bound: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Before `dataclass` looks: it would make one that shows passwords in URLs.
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = Operation.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        shown = (
            f"{f.name}={_shown(getattr(self, f.name), options_of(type(self))[f.name][1])!r}"
            for f in fields(self)
            if f.repr
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    def __post_init__(self) -> None:
        for name, (_, declared) in options_of(type(self)).items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _checked(name.replace("_", "-"), value, declared))
        self.check()

    def check(self) -> None:
        """Refuse combinations that make no sense (BadOption); subclasses extend it."""

    def to_dict(self) -> dict[str, Any]:
        """Verb and options as JSON-able data; bindings are left out."""
        declared = options_of(type(self))
        return Hidden(
            {"verb": self.verb, **{n: getattr(self, n) for n, (_, o) in declared.items() if not o.binding}}
        )

    def identity(self) -> str:
        """What *the same line* means: a hash of all that decides which bytes end where."""
        deciding = {
            n: getattr(self, n)
            for n, (_, o) in options_of(type(self)).items()
            if o.identity and not o.binding
        }
        return hashlib.sha256(json.dumps([self.verb, deciding], sort_keys=True).encode()).hexdigest()[:32]

    def places(self) -> tuple[str, str]:
        """Source and target, as far as the verb has them."""
        return getattr(self, "source", "") or "", getattr(self, "target", "") or ""

    def line(self, show: Callable[[str], str] = str) -> str:
        """The words that say this operation again: ``pull s3://b/data /w/data --include '*.mp4'``.

        Options that have their default are left out, and so are bindings, which may be secret. Empty if no line can say
        it (a list of places).

        Parameters
        ----------
        show : callable
            How a place is written, for example without its password.
        """
        places, options = [self.verb], list[str]()
        for name, (declared_field, declared) in options_of(type(self)).items():
            value = getattr(self, name)
            if declared.positional:
                if isinstance(value, tuple):
                    return ""
                places += [] if value is None else [show(value)]
            elif not declared.binding and value != declared_field.default:
                options += _said(f"--{name.replace('_', '-')}", value, declared, show)
        return shlex.join([*places, *options])

    def local_target(self) -> str | None:
        """The local folder that this would write to, or None: what the space check looks at."""
        return None

    def locked_target(self) -> str | None:
        """The local folder in which nobody else may work meanwhile, or None."""
        return self.local_target()

    # -- doing it -----------------------------------------------------------------------------

    def plan(self) -> Plan:
        """What would happen, with counts, bytes and space; reads only."""
        return slots.host().plan(self)

    def start(self) -> Job:
        """Begin, in the background; the Job can be watched, paused, cancelled and waited for."""
        return slots.host().submit(self, background=True)

    def run(self, *, quiet: bool = False) -> Any:
        """Begin, show progress, wait; returns the Report, or raises what went wrong."""
        return slots.display().follow(slots.host().submit(self, background=False), quiet=quiet)


def _shown(value: Any, declared: Option) -> Any:
    """A value as its operation's repr has it."""
    if declared.kind not in ("place", "path") or value is None:
        return value
    return tuple(map(redacted, value)) if isinstance(value, tuple) else redacted(value)


def _checked(name: str, value: Any, declared: Option) -> Any:
    """One value in its canonical form, or BadOption."""
    kind = declared.kind
    if kind == "pairs":
        if not isinstance(value, Mapping):
            raise BadOption(
                f"{name.replace('-', '_')}: this is a {type(value).__name__}",
                expected="a dictionary of options",
            )
        remember_options(value)
        return Hidden(value)
    if kind in ("place", "path"):
        remember_options({"": value})
        if isinstance(value, (list, tuple)):
            return tuple(canonical(v, name=name) for v in value)
        return canonical(value, name=name)
    if kind == "size":
        return parse_size(value, option=f"--{name}")
    if kind == "flag":
        if not isinstance(value, bool):
            raise BadOption(f"--{name}: {value!r} is neither True nor False")
        return value
    if kind == "optional":
        if not isinstance(value, bool) and not (isinstance(value, str) and value):
            raise BadOption(f"--{name}: {value!r} is neither True, False nor a text")
        return value
    if kind == "count":
        return _count(name, value)
    if kind == "texts":
        try:
            values = (value,) if isinstance(value, str) else tuple(value)
        except TypeError:
            raise BadOption(f"--{name}: {value!r} is not a text or a list of texts") from None
        if not all(isinstance(v, str) and v for v in values):
            raise BadOption(f"--{name}: {value!r} is not a text or a list of texts")
        return values
    if kind == "sample":
        return _sample(name, value)
    if kind == "text" and not isinstance(value, str):
        raise BadOption(f"--{name}: {value!r} is not a text")
    if declared.choices and value not in declared.choices:
        raise BadOption(
            f"--{name}: {value!r} is not a choice", remedy=suggest(str(value), list(declared.choices))
        )
    return value


def _said(flag: str, value: Any, declared: Option, show: Callable[[str], str]) -> list[str]:
    """One option as words of a command line."""
    if declared.kind == "flag" or value is True:
        return [flag]
    words = []
    for one in value if isinstance(value, tuple) else (value,):
        text = show(one) if declared.kind in ("place", "path") else str(one)
        # A value that looks like an option must be one word with its name.
        words += [f"{flag}={text}"] if text.startswith("-") else [flag, text]
    return words


def _count(name: str, value: Any) -> int:
    try:
        number = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else -1
    except ValueError:
        number = -1
    if number < 0:
        raise BadOption(f"--{name}: {value!r} is not a count", expected="a whole number, 0 or more")
    return number


def _sample(name: str, value: Any) -> str:
    text = str(value).strip()
    number = text.removesuffix("%")
    try:
        good = 0 < float(number) <= 100 if text.endswith("%") else int(number) > 0
    except ValueError:
        good = False
    if not good:
        raise BadOption(
            f"--{name}: {value!r} is not a sample", expected="a number of objects or a share such as 5%"
        )
    return text


@dataclass
class Context:
    """Whose credentials, whose folder: what a client sends along with an Operation, in memory only.

    Attributes
    ----------
    cwd, umask
        The client's; the engine has others.
    env : dict
        The part of the client's environment that stores read (``AWS_*``, ``*_PROXY`` …).
    storage_options : dict
        As given with the operation (fsspec names).
    target_options : dict
        The same for the target alone, of verbs with two stores; empty where `storage_options` hold there too.
    fsspec_conf : dict
        ``fsspec.config.conf``: protocol to options.
    filesystem : dict or None
        A file system handed in with ``fs=``, as fsspec's ``to_dict``, when it can be rebuilt.
    state_dir : str
        Where the index is kept.
    target_id : tuple of (path, st_dev, st_ino) or None
        The target's nearest existing ancestor as the client sees it; an agent that sees another
        one lives in another mount namespace and must not do the work.
    owner : str
        A short name of the client for lists (``kernel 1234``), no secret.
    """

    cwd: str
    umask: int = 0o022
    env: dict[str, str] = field(default_factory=dict, repr=False)
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    target_options: dict[str, Any] = field(default_factory=dict, repr=False)
    fsspec_conf: dict[str, Any] = field(default_factory=dict, repr=False)
    filesystem: dict[str, Any] | None = field(default=None, repr=False)
    state_dir: str = ""
    target_id: tuple[str, int, int] | None = None
    owner: str = ""

    def __post_init__(self) -> None:
        for options in (
            self.env,
            self.storage_options,
            self.target_options,
            self.fsspec_conf,
            self.filesystem,
        ):
            remember_options(options)

    def to_dict(self) -> dict[str, Any]:
        """All of it, secrets included: for the private socket only."""
        return Hidden({f.name: getattr(self, f.name) for f in fields(self)})

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Context:
        """The way back from `to_dict`."""
        known = {f.name for f in fields(cls)}
        context = cls(**{k: v for k, v in data.items() if k in known})
        if context.target_id is not None:
            context.target_id = tuple(context.target_id)  # type: ignore[assignment]  # JSON has lists
        return context


@dataclass(frozen=True)
class Item:
    """Something a job hands out while it runs, leased to one connection until it is acknowledged.

    Unpacks as ``path, size``. It is there until the next one is asked for.

    Attributes
    ----------
    number : int
        Counts the items of the job from 0.
    path : str
        Local: a folder, a file, or what the names of a sample's files begin with.
    key : str
        Relative to the source: folder, file, or the sample's name without extensions.
    size : int
        Bytes of its files.
    epoch : int
        From 0.
    began : float
        When there was room for it, so that its bytes could be asked for (``time.monotonic``, 0 if nobody noted it).
    """

    number: int
    path: str
    key: str
    size: int
    epoch: int = 0
    began: float = 0.0

    def __iter__(self) -> Iterator[Any]:
        return iter((self.path, self.size))

    @property
    def files(self) -> list[str]:
        """Its local files, sorted."""
        if os.path.isdir(self.path):
            return sorted(
                os.path.join(folder, name) for folder, _, names in os.walk(self.path) for name in names
            )
        if os.path.isfile(self.path):
            return [self.path]
        return sorted(glob.glob(f"{glob.escape(self.path)}.*"))


class Waiting(Protocol):
    """Who is told how long items were waited for."""

    def add(self, asked: float, came: float, item: Item) -> None:
        """When an item was asked for and when it came (``time.monotonic``)."""


class Job(Protocol):
    """A running operation, as a client sees it."""

    @property
    def id(self) -> str:
        """Short id, as lists show it."""

    def snapshot(self) -> Snapshot:
        """How it looks now."""

    def watch(self) -> Iterator[Snapshot]:
        """Snapshots as they change, at most four a second; ends with the finished state."""

    def wait(self, timeout: float | None = None) -> Report:
        """Wait for the end; returns the Report or raises what went wrong."""

    def report(self) -> Report:
        """The Report of a finished job, whether it went well or not."""

    def pause(self) -> None:
        """Stop moving bytes until `resume`."""

    def resume(self) -> None:
        """Go on after `pause`."""

    def cancel(self) -> None:
        """End within a second, resumable."""

    def interrupt(self) -> bool:
        """Ctrl-C in the foreground; False when others wait too, and it only detached."""

    def items(self, credit: int = 2, waits: Waiting | None = None) -> Iterator[Item]:
        """The items it hands out; at most `credit` are leased at a time, each until the next is asked for.

        Who leaves early gives back what it has not seen. `waits` is told how long each was waited for."""

    def release(self) -> None:
        """End a job that is bound to this process, and wait until what it held is free."""


class Host(Protocol):
    """Where operations are carried out: the agent, or this process."""

    def plan(self, operation: Operation) -> Plan:
        """See `Operation.plan`."""

    def submit(self, operation: Operation, *, background: bool) -> Job:
        """Start it, or attach to the running job of the same identity."""

    def jobs(self) -> list[Snapshot]:
        """All jobs that can be seen, running and finished, newest last."""

    def job(self, job_id: str) -> Job:
        """A job by its id; NotFound if there is none."""


class Display(Protocol):
    """How progress and results are shown."""

    def follow(self, job: Job, *, quiet: bool = False) -> Report:
        """Show a foreground job until it ends; returns its Report or raises."""

    def begin(self, job: Job, *, bound: bool = False) -> None:
        """Before the first snapshot; `bound` says that the job ends with the loop over its items."""

    def update(self, snapshot: Snapshot) -> None:
        """At each change, at most four times a second."""

    def end(self, text: str, report: Report | None) -> None:
        """Once, at the end: the last, true line, and the report if there is one."""


class _Slots:
    """Which Host and Display are used, and what makes an iterable of a stream; each is called when first needed."""

    host: Callable[[], Host]
    display: Callable[[], Display]
    stream: Callable[[Operation, bool], Any]


slots = _Slots()

_Op = TypeVar("_Op", bound=Operation)


def function_of(cls: type[_Op]) -> Callable[..., Any]:
    """The Python function of a verb, with signature and documentation made from the declaration.

    It returns the Report; with ``dry_run=True`` the Plan, with ``background=True`` the Job.
    """

    def run_verb(
        *args: Any, dry_run: bool = False, background: bool = False, quiet: bool = False, **options: Any
    ) -> Any:
        operation = _made(cls, signature, args, options)
        del args, options  # a traceback of what comes now may show local variables
        if isinstance(operation, BadOption):
            raise operation
        if background and cls.bound:
            raise BadOption(f"{cls.verb}: there is no background: it ends with the loop over it")
        if dry_run:
            return operation.plan()
        if background:
            return operation.start()
        return operation.run(quiet=quiet)

    parameters = list(inspect.signature(cls).parameters.values())
    signature = inspect.Signature(parameters)
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False)
        for name in ("dry_run", "background", "quiet")
        if not (cls.bound and name == "background")
    ]
    functools.update_wrapper(run_verb, cls, assigned=("__module__",), updated=())
    run_verb.__name__ = run_verb.__qualname__ = cls.verb
    run_verb.__doc__ = numpydoc(cls)
    run_verb.__signature__ = signature.replace(parameters=[*parameters, *extra])  # type: ignore[attr-defined]
    del run_verb.__wrapped__  # type: ignore[attr-defined]
    return run_verb


def _made(
    cls: type[_Op], signature: inspect.Signature, args: tuple[Any, ...], options: dict[str, Any]
) -> _Op | BadOption:
    """The operation that a call means, or what is wrong with it: without the frames that hold what was given."""
    declared = options_of(cls)
    for name in options:
        if name not in declared:
            return BadOption(f"{cls.verb}: unknown option {name!r}", remedy=suggest(name, list(declared)))
    try:
        bound = signature.bind(*args, **options)
    except TypeError as error:
        return BadOption(f"{cls.verb}: {error}", remedy=f"See help(nbdata.{cls.verb})")
    try:
        return cls(*bound.args, **bound.kwargs)
    except BadOption as error:
        return error.with_traceback(None)


def numpydoc(cls: type[Operation]) -> str:
    """The documentation of a verb's Python function."""
    lines = [cls.summary, "", inspect.cleandoc(cls.__doc__ or ""), "", "Parameters", "----------"]
    for name, (declared_field, declared) in options_of(cls).items():
        kind = " or ".join(repr(c) for c in declared.choices) or declared.kind
        default = "" if declared_field.default is MISSING else f", default {declared_field.default!r}"
        lines += [f"{name} : {kind}{default}", f"    {declared.help}"]
    lines += [
        "dry_run : flag, default False",
        "    Return the Plan (objects, bytes, space) and move nothing.",
        *([] if cls.bound else ["background : flag, default False", "    Return the Job at once."]),
        "quiet : flag, default False",
        "    Show no progress and no result.",
    ]
    return "\n".join(lines)
