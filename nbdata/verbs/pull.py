"""The verb pull: copies objects from a store to the local disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of
from nbdata.option import argument, option
from nbdata.paths import glob_base, has_glob, is_url, last_component, path_text
from nbdata.verbs.options import Dealing, Fetching, Mirroring, Verifying, Writing

__all__ = ["Pull", "pull"]


@dataclass(frozen=True)
class Pull(Verifying, Mirroring, Fetching, Dealing, Writing):
    """Pull skips objects that are in TARGET already and are unchanged. It compares each object with its
    checksum in the store while the bytes arrive. A file gets its final name only when it is whole
    and verified. Run the same command again to resume after an interruption.

    The contents of a source folder go into TARGET. A single object goes to TARGET, or into it if
    TARGET is a folder or ends in a slash.

    If a file was edited only on the disk, pull restores it to the object in the store. Use
    --overwrite never to keep it.
    """

    verb: ClassVar[str] = "pull"
    summary: ClassVar[str] = "Copy objects from a store to the local disk."
    examples: ClassVar[tuple[str, ...]] = (
        "pull s3://bucket/data/ data",
        "pull s3://bucket/data/ data --include '*.mp4' --max-bytes 4GB",
        "pull s3://bucket/data/ data --dry-run",
    )

    source: str = argument(
        "URL or path of an object or a folder; may contain globs and brace ranges.", metavar="SOURCE"
    )
    target: str | None = argument(
        "Local folder or file. Default: the last component of SOURCE, in the working directory.",
        default=None,
        metavar="TARGET",
    )
    encode_names: bool = option(
        False,
        "Also fetch objects whose keys are not valid file names (a/../b, a//b, over 255 bytes …). They get encoded "
        "names, from which push --encode-names restores the keys.",
        kind="flag",
    )

    def __post_init__(self) -> None:
        if self.target is None and (source := path_text(self.source)) is not None:
            name = last_component(glob_base(source) if has_glob(source) else source)
            if name:
                object.__setattr__(self, "target", f"./{name}")
        super().__post_init__()

    def check(self) -> None:
        if self.target is None:
            raise BadOption(
                "pull: the target cannot be derived from the source", remedy="Name a TARGET folder"
            )
        if is_url(self.target):
            raise BadOption(
                f"pull: the target {self.target} is a URL",
                expected="a local path",
                remedy=f"Use {'copy from store to store' if is_url(self.source) else 'push to copy to a store'}",
            )
        super().check()

    def local_target(self) -> str | None:
        return self.target


pull = function_of(Pull)
