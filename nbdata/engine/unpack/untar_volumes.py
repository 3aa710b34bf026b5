"""Plan and perform untar_volumes, for one archive or several in a folder."""

from __future__ import annotations

from dataclasses import replace

from nbdata.engine.job.run import Run
from nbdata.engine.planning.target_path import refuse_file
from nbdata.engine.unpack.dealt_sets import deal_each, unpack_part
from nbdata.engine.unpack.one_set import plan_set, unpack_set
from nbdata.engine.unpack.several_sets import SeveralSets, plan_each, remembered_titles, unpack_each
from nbdata.engine.unpack.targets.resolve import source_run
from nbdata.engine.unpack.volumes.checksum_files import ChecksumFiles
from nbdata.engine.unpack.volumes.in_file import volumes_in_file
from nbdata.errors import BadOption
from nbdata.report import Plan, Report
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["perform", "plan"]


def plan(run: Run) -> Plan:
    """List the volumes and check what is there already.

    Reads listings, the index and the first bytes of each archive (see `plan_set`); writes nothing.
    """
    op = run.operation
    assert isinstance(op, UntarVolumes)
    refuse_file(op.local_target())
    around = None
    if isinstance(op.source, str):
        listed, around = volumes_in_file(source_run(run, op), op.source)
        if listed:
            run.operation = op = replace(op, source=listed)
    checksums = ChecksumFiles.at(source_run(run, op), op.against) if op.against is not None else None
    remembered = remembered_titles(run, op)
    if not remembered and len(op.set) < 2:
        try:
            return plan_set(run, around, checksums)
        except BadOption as error:
            if not isinstance(op.source, str) or op.set or "stems" not in error.details:
                raise
    return plan_each(run, remembered, checksums)


def perform(run: Run, planned: Plan) -> Report:
    """Do what the plan says."""
    if run.as_part is not None:
        return unpack_part(run, planned)
    if isinstance(run.kept, SeveralSets):
        return unpack_each(run, run.kept) if run.dealer is None else deal_each(run, planned, run.kept)
    report = unpack_set(run, planned)
    if run.dealer is not None:
        report.notes.append("--cluster was not used: it deals whole archives, and this is one")
    return report
