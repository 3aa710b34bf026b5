"""FFRecord files for code written for the ffrecord library: the same names and meanings.

Where that library crashes, gives an empty data set or is undefined, this one raises an error with a remedy.
`nbdata.samples` reads the same files for a training loop; `nbdata.loaders.ffrecord` has counterparts of
``ffrecord.torch``. ``__version__`` is nbdata's.

Examples
--------
>>> from nbdata.ffrecord import FileReader, FileWriter
>>> with FileWriter("/tmp/example.ffr", n=2) as writer:
...     writer.write_one(b"first")
...     writer.write_one(b"second")
>>> reader = FileReader("/tmp/example.ffr")
>>> reader.n
2
>>> bytes(reader.read_one(1))
b'second'
"""

from nbdata.client.records.alignment import checkFsAlign
from nbdata.client.records.general import GeneralDataset
from nbdata.client.records.packed import PackedFolder, pack_folder
from nbdata.client.records.reader import FileReader
from nbdata.client.records.registry import ReaderRegistry
from nbdata.client.records.writer import FileWriter
from nbdata.ffrecord import utils
from nbdata.version import __version__

__all__ = [
    "FileReader",
    "FileWriter",
    "GeneralDataset",
    "PackedFolder",
    "ReaderRegistry",
    "__version__",
    "checkFsAlign",
    "pack_folder",
    "utils",
]
