"""The public names: what people write after ``import nbdata``, and the modules that they import by name.

A name that goes breaks somebody's notebook; a new one is added here on purpose.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import nbdata

NAMES = {
    "__init__": """
        AccessDenied AgentUnavailable BadArchive BadOption CacheStream Cancelled ChecksumMismatch Cleanup
        Convert Copy Delete Du Job Ls Md5check MissingVolume Mount NbdataError NotEnoughSpace NotFound Pack Plan Pull
        Push Quota Report SampleSource ServeSamples Shards Snapshot SourceChanged StoreUnavailable TransferFailed
        Transfers UnsafeMember Unmount UntarVolumes __version__ cache_stream cleanup convert copy decode delete demo du
        filesystem ls md5check mount open pack pull push quota samples serve_samples shards shift transfers unmount
        untar_volumes write_shards
    """,
    "demo/__init__": "serve",
    "ffrecord/__init__": """
        FileReader FileWriter GeneralDataset PackedFolder ReaderRegistry __version__ checkFsAlign pack_folder utils
    """,
    "ffrecord/utils": "dump",
    "files/__init__": "FileSystem filesystem use_for",
    "files/mox/__init__": "file",
    "loaders/ffrecord": "ConcatDataset DataLoader Dataset ReaderRegistry Subset",
    "loaders/mmdet3d": "BACKEND FFRecordBackend LoadMultiViewImageFromFilesHF register",
    "loaders/pytorch/__init__": "CacheStreamDataset SampleDataset SampleLoader SampleStream",
    "loaders/service/__init__": "Client Service serve",
    "loaders/tensorflow": "dataset",
    "loaders/webdataset": "Source source",
}


@pytest.mark.parametrize("module", NAMES)
def test_the_public_names_are_these(module: str) -> None:
    path = Path(nbdata.__file__).parent / f"{module}.py"
    (names,) = (  # some of these modules need packages that are not always installed
        ast.literal_eval(node.value)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert sorted(names) == sorted(NAMES[module].split())
