"""Options that change samples with a program of the user."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from nbdata.errors import BadOption
from nbdata.operation import Operation
from nbdata.option import option
from nbdata.verbs.options import refuse_pairs

__all__ = ["MAP_SAMPLES", "Changing"]

# Maximum processes of --map.
_MOST_WORKERS = 256
#: Samples in a folder of --map-many by default.
MAP_SAMPLES = 100


@dataclass(frozen=True)
class Changing(Operation):
    """Verbs that hand each sample to a function or command of the user, in processes of this machine."""

    map: Any = option(
        None,
        "Transform each sample with COMMAND, in parallel processes on this machine. COMMAND runs once per sample "
        "and without a shell. It gets a temporary folder with a file sample.EXT for each field, in place of {} or "
        "as its last argument, and sample.__key__ with its key. The files sample.EXT in the folder at its end are "
        "the new sample; if there are none, the sample is left out. If there are files sample-000000.EXT and so "
        "on, each number is a new sample in its place. In Python also a function that gets a sample (a dict) and "
        "returns a dict, several dicts, or None to leave it out. It is called by this process, not by the agent, "
        "and cannot resume: existing shards need --overwrite always. Fields are renamed before (--rename).",
        kind="function",
        binding=True,
        identity=False,
        metavar="COMMAND",
    )
    map_many: str | None = option(
        None,
        "Transform many samples with one run of COMMAND, for a program that is slow to start. As --map, but the folder "
        "has the files sample-000000.EXT, sample-000001.EXT and so on of --map-samples samples, and these files at "
        "its end are the new samples.",
        binding=True,
        identity=False,
        metavar="COMMAND",
    )
    map_samples: int | None = option(
        None,
        "Number of samples in a folder of --map-many (default: 100). A folder holds fewer if they have more than 64 "
        "MiB together.",
        kind="count",
        identity=False,
        metavar="N",
        expected="at least 1",
    )
    map_workers: int | None = option(
        None,
        "Number of processes for --map and --map-many (default: one per processor).",
        kind="count",
        identity=False,
        metavar="N",
    )

    def check_maps(self) -> None:
        """Raise BadOption for values that make no sense, alone or together."""
        refuse_pairs(self, "map", ("map_many",))
        if self.map is None and self.map_many is None and self.map_workers is not None:
            raise BadOption("--map-workers is for --map", remedy="Leave it out")
        if self.map_many is None and self.map_samples is not None:
            raise BadOption("--map-samples is for --map-many", remedy="Leave it out")
        if self.map_samples == 0:
            raise BadOption("--map-samples: 0", expected="at least 1")
        if self.map_workers is not None and not 1 <= self.map_workers <= _MOST_WORKERS:
            raise BadOption(
                f"--map-workers: {self.map_workers} is out of range", expected=f"1 to {_MOST_WORKERS}"
            )
        if not callable(self.map):
            _ = self.map_words

    @property
    def map_words(self) -> list[str]:
        """The words of the command of ``--map`` or ``--map-many``; BadOption if it is none. Empty without them."""
        flag, text = ("--map", self.map) if self.map_many is None else ("--map-many", self.map_many)
        if text is None:
            return []
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise BadOption(f"{flag}: {str(error).lower()}", remedy="Close the quotes") from None
        if not words:
            raise BadOption(f"{flag}: this command is empty", expected="a command such as 'convert.sh {}'")
        return words
