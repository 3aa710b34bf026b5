"""Operation: the validated options of a verb, decided before any work; its Context and its Python function.

An Operation is a frozen, validated set of options (`nbdata.option`). A Host plans it and carries it out.
``nbdata/__init__.py`` (and the notebook's face) put the Host and the Display in use into `slots`.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import posixpath
import shlex
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, ClassVar, Protocol, TypeVar

from nbdata.errors import ROOM_THEN_AGAIN, BadOption
from nbdata.interrupts import held_interrupt
from nbdata.option import Option, checked, options_of, shown, storage_pair, suggest, takes_several, words_of
from nbdata.origins import SERVICES, origin_of
from nbdata.paths import glob_base, is_url, working_place
from nbdata.protocols import Display, Job, Planning
from nbdata.redaction import Hidden, remember_options
from nbdata.report import Plan, Report, Snapshot

__all__ = ["Context", "Host", "InProcess", "Operation", "function_of", "slots"]


class Host(Protocol):
    """The place that carries operations out: the agent, or this process."""

    def plan(self, operation: Operation) -> Plan:
        """See `Operation.plan`."""

    def planning(self, operation: Operation) -> Planning:
        """Ask for a plan; the caller may cancel that."""

    def submit(self, operation: Operation, *, background: bool) -> Job:
        """Start the operation, or attach to the running job of the same identity."""

    def look(self) -> tuple[list[Snapshot], bool]:
        """Return all visible jobs, newest last, and whether some are missing, since an agent does not answer."""

    def job(self, job_id: str) -> Job:
        """Return a job by its id; NotFound if there is none."""


class InProcess(Protocol):
    """An operation that this process carries out, because it calls objects of the caller."""

    def plan(self) -> Plan:
        """See `Operation.plan`."""

    def run(self, *, quiet: bool) -> Report:
        """See `Operation.run`."""


class _Slots:
    """Factories for the Host, the Display and the operations that this process carries out; called when first needed.

    The latter are an iterable of a stream, a sequence of samples, a writer of shards, a pack that changes samples, and
    a conversion. `mount` mounts and unmounts, `service` serves batches until Ctrl-C.
    """

    host: Callable[[], Host]
    display: Callable[[], Display]
    stream: Callable[[Operation, bool], Any]
    samples: Callable[[Operation, bool], Any]
    shard_writer: Callable[[Operation, dict[str, Any]], Any]
    mapped_pack: Callable[[Operation], InProcess]
    conversion: Callable[[Operation], InProcess]
    mount: Callable[[Operation, bool], Any]
    service: Callable[[Operation, bool], Any]


slots = _Slots()


@dataclass(frozen=True)
class Operation:
    """Base of all verbs: options that are decided before any work starts.

    Subclasses set `verb` and declare fields with `argument` and `option`. Construction validates the values and makes
    them canonical. So every existing Operation makes sense, and two ways to write the same command compare equal.
    """

    verb: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    examples: ClassVar[tuple[str, ...]] = ()
    # True for a question: it is answered, but appears in no list of jobs.
    query: ClassVar[bool] = False
    # True if the job is worth nothing without the process that asked for it, and ends with its connection.
    bound: ClassVar[bool] = False
    # True if several processes can use the job at a time; it ends some time after the last of them.
    shared: ClassVar[bool] = False
    #: The advice for a job that was stopped.
    stopped: ClassVar[str] = "Run it again to resume"
    #: The options with which the operation needs less room.
    less: ClassVar[str] = "--max-bytes or --include"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Before `dataclass` looks: its own repr would show passwords in URLs.
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = Operation.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        options = (
            f"{f.name}={shown(getattr(self, f.name), options_of(type(self))[f.name][1])!r}"
            for f in fields(self)
            if f.repr
        )
        return f"{type(self).__name__}({', '.join(options)})"

    def __post_init__(self) -> None:
        self.made_in(working_place())
        for name, (declared_field, declared) in options_of(type(self)).items():
            value = getattr(self, name)
            if value is not None or declared_field.default is not None:
                object.__setattr__(self, name, checked(name.replace("_", "-"), value, declared))
        self.check()

    def made_in(self, here: tuple[str, int, int] | None) -> None:
        """Note the working folder in which relative places were made absolute: see `nbdata.paths.working_place`."""
        object.__setattr__(self, "_here", here)

    @property
    def here(self) -> tuple[str, int, int] | None:
        """The working folder in which relative places were made absolute: name, device and inode."""
        return vars(self)["_here"]  # type: ignore[no-any-return]  # no field: it is no option

    def check(self) -> None:
        """Refuse combinations that make no sense (BadOption); subclasses extend it."""

    def to_dict(self) -> dict[str, Any]:
        """Return verb and options as JSON-able data; bindings are left out."""
        declared = options_of(type(self))
        return Hidden(
            {"verb": self.verb, **{n: getattr(self, n) for n, (_, o) in declared.items() if not o.binding}}
        )

    def identity(self) -> str:
        """Return a hash of all options that decide which bytes end where; equal hashes mean *the same command*."""
        deciding = {
            n: getattr(self, n)
            for n, (_, o) in options_of(type(self)).items()
            if o.identity and not o.binding
        }
        return hashlib.sha256(json.dumps([self.verb, deciding], sort_keys=True).encode()).hexdigest()[:32]

    def options_in(self, *groups: type[Operation]) -> dict[str, Any]:
        """Return the options of these groups by name, to hand them to an operation of another verb that has them too.

        An option that is added to a group is handed on by itself.
        """
        return {one.name: getattr(self, one.name) for group in groups for one in fields(group)}

    def places(self) -> tuple[str, str]:
        """Return source and target, as far as the verb has them."""
        return getattr(self, "source", "") or "", getattr(self, "target", "") or ""

    def origins(self) -> set[str]:
        """Return the origins that the options name (see `nbdata.origins`): only they get credentials.

        A source on this disk may be a list that the user wrote, so it may lead to all services that they configured.
        """
        origins = set(map(origin_of, self.named()))
        sources = _places(getattr(self, "source", None))
        return origins if all(map(is_url, sources)) else origins | SERVICES

    def named(self) -> tuple[str, ...]:
        """Return all places that the options name."""
        named = [getattr(self, name) for name, (_, one) in options_of(type(self)).items() if one.is_path]
        return tuple(place for one in named for place in _places(one))

    def line(self, show: Callable[[str], str] = str) -> str:
        """Return the command of this operation: ``pull s3://b/data /w/data --include '*.mp4'``.

        Options with their default value are left out, and so are bindings, which may be secret. Empty if no command can
        express the operation (a list of one place, or of volumes).

        Parameters
        ----------
        show : callable
            Formats a place, for example without its password.
        """
        places, options = [self.verb], list[str]()
        for name, (declared_field, declared) in options_of(type(self)).items():
            value = getattr(self, name)
            if declared.positional:
                several = value if isinstance(value, tuple) else () if value is None else (value,)
                if isinstance(value, tuple) and (len(value) < 2 or name != takes_several(type(self))):
                    return ""
                places += map(show, several)
            elif not declared.binding and value != declared_field.default:
                options += words_of(f"--{name.replace('_', '-')}", value, declared, show)
        return shlex.join([*places, *options])

    def local_target(self) -> str | None:
        """Return the local folder that the operation would write to, or None; the space check looks there."""
        return None

    @property
    def room_elsewhere(self) -> str:
        """A note on files that must stay for the job to resume by itself; starts with a comma, or is empty."""
        return ""

    @property
    def with_less(self) -> str:
        """The advice for a plan that does not fit: how to run the operation with the existing space."""
        return f"take less with {self.less}"

    @property
    def with_room(self) -> str:
        """The advice once a full disk has stopped the operation."""
        return ROOM_THEN_AGAIN

    def locked_target(self) -> str | None:
        """Return the local folder that only this job may work in, or None."""
        return self.local_target()

    def claimed(self) -> list[str]:
        """Return the local places that cleanup must leave alone until the job ends: what it reads, and its target."""
        if self.query or self.bound or self.shared:  # caches have locks of their own
            return []
        source = getattr(self, "source", None) or ()
        local = [place for place in ([source] if isinstance(source, str) else source) if not is_url(place)]
        read = posixpath.commonpath([glob_base(place) for place in local]) if local else None
        return [place for place in (read, self.locked_target()) if place]

    # -- doing it -----------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Return what would happen, with counts, bytes and space; reads only."""
        return slots.host().plan(self)

    def start(self) -> Job:
        """Start in the background; the Job can be watched, paused, cancelled and waited for."""
        return slots.host().submit(self, background=True)

    def run(self, *, quiet: bool = False) -> Any:
        """Start, show progress and wait; return the Report, or raise the error."""
        with held_interrupt() as held:  # until the display takes over, which can handle it
            job = slots.host().submit(self, background=False)
            return slots.display().follow(job, quiet=quiet, held=held)


@dataclass
class Context:
    """The client's credentials and working folder, which it sends along with an Operation; held in memory only.

    Attributes
    ----------
    cwd, umask
        The client's working folder and umask; the engine has others. The folder is empty if it was deleted.
    env : dict
        The part of the client's environment that stores read (``AWS_*``, ``*_PROXY`` …).
    storage_options : dict
        As given with the operation (fsspec names).
    target_options : dict
        The same for the target alone, for verbs with two stores; empty where `storage_options` apply there too.
    connections : dict
        By ``--option`` and ``--target-option``: the name of a connection, and the names of the options that it gave.
    fsspec_conf : dict
        ``fsspec.config.conf``: protocol to options.
    filesystem : dict or None
        A file system passed with ``fs=``, as fsspec's ``to_dict``, if it can be rebuilt.
    state_dir : str
        The folder of the index.
    target_id : tuple of (path, st_dev, st_ino) or None
        The target's nearest existing ancestor as the client sees it. An agent that sees another one lives in
        another mount namespace and must not do the work.
    here : tuple of (path, st_dev, st_ino) or None
        The client's working folder when it made relative places absolute. Places in it are opened from there: who may
        rename it could have its name lead elsewhere by now.
    owner : str
        A short name of the client for lists (``train.ipynb``, or ``kernel 1234``), not a secret.
    notebook : str
        The absolute path of the notebook that the client is the kernel of; empty if that is not known.
    origins : tuple of str or None
        The origins that the user named (see `nbdata.origins`); no other one gets credentials. None: all get them.
    allow_html : bool
        Whether a web page may be the content of a file with another name.
    """

    cwd: str
    umask: int = 0o022
    env: dict[str, str] = field(default_factory=dict, repr=False)
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    target_options: dict[str, Any] = field(default_factory=dict, repr=False)
    connections: dict[str, list[str]] = field(default_factory=dict)
    fsspec_conf: dict[str, Any] = field(default_factory=dict, repr=False)
    filesystem: dict[str, Any] | None = field(default=None, repr=False)
    state_dir: str = ""
    target_id: tuple[str, int, int] | None = None
    here: tuple[str, int, int] | None = None
    owner: str = ""
    notebook: str = ""
    origins: tuple[str, ...] | None = None
    allow_html: bool = False

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
        """Return all fields, secrets included: for the private socket only."""
        return Hidden({f.name: getattr(self, f.name) for f in fields(self)})

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Context:
        """Rebuild a Context from `to_dict`."""
        known = {f.name for f in fields(cls)}
        context = cls(**{k: v for k, v in data.items() if k in known})
        if context.target_id is not None:
            context.target_id = tuple(context.target_id)  # type: ignore[assignment]  # JSON has lists
        if context.here is not None:
            name, device, inode = context.here
            context.here = str(name), int(device), int(inode)
        if context.origins is not None:
            context.origins = tuple(context.origins)
        return context

    def knows(self, place: str) -> bool:
        """Return whether the user named the origin of a place, so that it may get credentials."""
        origin = origin_of(place)
        return not origin or self.origins is None or origin in self.origins

    def without_credentials(self) -> Context:
        """Return this context for an origin that only an index named: with nothing that identifies the user."""
        env = {name: value for name, value in self.env.items() if _tells_nothing(name)}
        return replace(
            self,
            env={**env, "HOME": "/nonexistent"},
            storage_options={},
            target_options={},
            connections={},
            fsspec_conf={},
        )


# Variables that say how to reach a server, not who asks.
_WAYS = (
    *("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CA_BUNDLE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    *(
        "OBS_REGION",
        "OBS_ENDPOINT",
        "AIS_ENDPOINT",
        "AIS_CLIENT_CA",
        "AIS_SKIP_VERIFY_CRT",
        "AIS_SKIP_VERIFY",
        "REQUESTS_CA_BUNDLE",
        "STORAGE_EMULATOR_HOST",
        "NBDATA_STALL_TIMEOUT",
        "PATH",
    ),
)


def _tells_nothing(name: str) -> bool:
    return name in _WAYS or name.startswith("SSL_CERT_") or name.lower().endswith("_proxy")


def _places(value: object) -> tuple[str, ...]:
    """Return the places in the value of an option."""
    return tuple(one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, str))


_Op = TypeVar("_Op", bound=Operation)
# Declares the further flags of a verb's Python function, beside the options of its operation.
_FACE_FLAG = Option("", kind="flag")


def function_of(cls: type[_Op]) -> Callable[..., Any]:
    """Make the Python function of a verb, with signature and documentation from its declaration.

    The function returns the Report; with ``dry_run=True`` the Plan, with ``background=True`` the Job.
    """

    def run_verb(
        *args: Any, dry_run: bool = False, background: bool = False, quiet: bool = False, **options: Any
    ) -> Any:
        operation = _made(cls, signature, args, options)
        del args, options  # a later traceback may show local variables
        if isinstance(operation, BadOption):
            raise operation
        for name, value in (("dry-run", dry_run), ("background", background), ("quiet", quiet)):
            checked(name, value, _FACE_FLAG)
        if background and cls.bound:
            raise BadOption(
                f"{cls.verb}: it cannot run in the background, because it ends with the loop over it"
            )
        if dry_run:
            return operation.plan()
        if background:
            return operation.start()
        return operation.run(quiet=quiet)

    parameters = list(inspect.signature(cls).parameters.values())
    signature = inspect.Signature(parameters)
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False) for name in _face_flags(cls)
    ]
    functools.update_wrapper(run_verb, cls, assigned=("__module__",), updated=())
    run_verb.__name__ = run_verb.__qualname__ = cls.verb
    run_verb.__doc__ = numpydoc(cls)
    run_verb.__signature__ = signature.replace(parameters=[*parameters, *extra])  # type: ignore[attr-defined]
    del run_verb.__wrapped__  # type: ignore[attr-defined]
    return run_verb


def _face_flags(cls: type[Operation]) -> list[str]:
    """Return the flags that a verb's Python function adds to its options."""
    return [name for name in ("dry_run", "background", "quiet") if not (cls.bound and name == "background")]


def _made(
    cls: type[_Op], signature: inspect.Signature, args: tuple[Any, ...], options: dict[str, Any]
) -> _Op | BadOption:
    """Return the operation of a call, or its error, without the frames that hold the arguments."""
    declared = options_of(cls)
    for name in options:
        if name not in declared:
            key = storage_pair(name, "").partition("=")[0] if "storage_options" in declared else ""
            remedy = (
                f"Write storage_options={{{key!r}: …}}"
                if key
                else suggest(name, [*declared, *_face_flags(cls)])
            )
            return BadOption(f"{cls.verb}: unknown option {name!r}", remedy=remedy)
    try:
        bound = signature.bind(*args, **options)
    except TypeError as error:
        return BadOption(f"{cls.verb}: {error}", remedy=f"See help(nbdata.{cls.verb})")
    try:
        return cls(*bound.args, **bound.kwargs)
    except BadOption as error:
        return error.with_traceback(None)


def numpydoc(cls: type[Operation]) -> str:
    """Return the documentation of a verb's Python function."""
    lines = [cls.summary, "", inspect.cleandoc(cls.__doc__ or ""), "", "Parameters", "----------"]
    for name, (declared_field, declared) in options_of(cls).items():
        kind = " or ".join(repr(c) for c in declared.choices) or declared.kind
        default = "" if declared_field.default is MISSING else f", default {declared_field.default!r}"
        lines += [f"{name} : {kind}{default}", f"    {declared.help}"]
    lines += [
        "dry_run : flag, default False",
        "    Return the Plan (objects, bytes, disk space) and change nothing.",
        *([] if cls.bound else ["background : flag, default False", "    Return the Job at once."]),
        "quiet : flag, default False",
        "    Show no progress and no result.",
    ]
    return "\n".join(lines)
