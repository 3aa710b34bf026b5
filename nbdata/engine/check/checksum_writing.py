"""The common part of ``md5check --write`` for manifests and sidecars: hash files, and report contradictions."""

from __future__ import annotations

import io
import posixpath

from nbdata.engine.check.rows import HashRow
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.errors import ChecksumMismatch
from nbdata.integrity.digests import new_digest
from nbdata.paths import glob_base
from nbdata.report import Plan
from nbdata.transfer.retry import retrying
from nbdata.verbs.md5check import Md5check
from nbdata.verification.hashing import Hashed, hash_object

__all__ = ["ChecksumWriting", "writing_algorithm"]


def writing_algorithm(op: Md5check) -> str:
    """The algorithm of new digests, unless the name of their file implies another."""
    return "md5" if op.algorithm == "auto" else op.algorithm


class ChecksumWriting:
    """Computes and writes the digests of the files of one plan."""

    def __init__(self, run: Run, op: Md5check, planned: Plan) -> None:
        self.run, self.op, self.plan = run, op, planned
        self.algorithm: str = planned.details["algorithm"]
        self.results = Results(run)
        self.results.notes += planned.details["left_out"]
        self.store = run.open(glob_base(op.source)).store

    def hashed(self, row: HashRow) -> Hashed:
        """Read a file to its end; the digest is the only one in ``digests``."""
        assert row.info is not None
        return hash_object(self.run.control, self.store, row.info, lambda: [new_digest(self.algorithm)])

    def left_out(self, row: HashRow) -> None:
        """Record a file that the plan does not hash."""
        self.results.add(row.path, Outcome(row.action), row.size, reason=row.reason)
        self.run.control.advance(failures=1)

    def contradicted(self, path: str, size: int, place: str, *, got: str, expected: str) -> None:
        """Record a file that contradicts an existing checksum file; raise the error if the run is to end here."""
        reason = f"differs from the digest in {posixpath.basename(place)}"
        self.results.fail(
            path,
            ChecksumMismatch(reason, path=path, expected=expected, got=got),
            outcome=Outcome.MISMATCH,
            size=size,
            moved=True,
            got=got,
            expected=expected,
            algorithm=self.algorithm,
            source=place,
            reason=str(ChecksumMismatch(reason, expected=expected, got=got)),
        )

    def write_object(self, key: str, content: bytes) -> None:
        """Write these bytes as an object beside the files."""
        retrying(self.run.control, lambda: self.store.write(key, io.BytesIO(content), len(content)))
