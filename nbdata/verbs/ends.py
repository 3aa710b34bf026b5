"""The source and target of a verb between stores: the storage options and file system object of each."""

from __future__ import annotations

from typing import Any, NamedTuple

from nbdata.errors import BadOption
from nbdata.operation import Operation
from nbdata.paths import is_url

__all__ = ["End", "ends_of", "urls_of_options"]


class End(NamedTuple):
    """The source or the target of a verb.

    Attributes
    ----------
    options : dict
        Its storage options.
    takes_fs : bool
        Whether ``fs=`` is a file system for it.
    """

    options: dict[str, Any]
    takes_fs: bool


def ends_of(
    places: tuple[str, str],
    storage_options: dict[str, Any] | None,
    target_options: dict[str, Any] | None,
    handed: object,
) -> tuple[End, End]:
    """Return the ends of a verb: source and target.

    ``--option`` applies to both ends if they have the same protocol, or if one is the local disk. ``--target-option``
    replaces it for the target.

    Parameters
    ----------
    places : tuple of (str, str)
    storage_options, target_options : dict or None
    handed : object
        A file system object, its description, or None.

    Raises
    ------
    BadOption
        If the file system is for neither place.
    """
    schemes = [place.partition("://")[0] for place in places]
    alike = _alike(*places)
    options = storage_options or {}
    at_target = target_options or (options if alike else {})
    known = _protocols(handed)
    if known and not known & set(schemes):
        raise BadOption(
            f"fs= is a file system for {', '.join(sorted(known))}",
            expected=" or ".join(f"{s}://" for s in schemes),
        )
    return End(options, schemes[0] in known), End(at_target, schemes[1] in known)


def urls_of_options(operation: Operation) -> dict[str, tuple[str, ...]]:
    """Return by flag, ``--option`` and ``--target-option``, the URLs whose stores get these storage options."""
    source, target = operation.places()
    urls = [place for place in operation.named() if is_url(place)]
    at_target = tuple(url for url in urls if url == target)
    if not getattr(operation, "target_options", None) and _alike(source, target):
        return {"--option": tuple(urls), "--target-option": at_target}
    return {"--option": tuple(url for url in urls if url != target), "--target-option": at_target}


def _alike(source: str, target: str) -> bool:
    """Return whether ``--option`` applies to the target, too."""
    return not is_url(source) or source.partition("://")[0] == target.partition("://")[0]


def _protocols(filesystem: object) -> set[str]:
    """Return the protocols of a file system object, or of its description; empty without one."""
    if filesystem is None:
        return set()
    found = (
        filesystem.get("protocol") if isinstance(filesystem, dict) else getattr(filesystem, "protocol", ())
    )
    return {found} if isinstance(found, str) else set(found or ())
