"""nbdata convert DATASET.py: what it writes, keeps and refuses."""

from __future__ import annotations

import json
import os
import pickle
import py_compile
import re
from pathlib import Path

import numpy as np
import pytest

import nbdata
from nbdata.errors import BadOption, NbdataError, NotEnoughSpace, NotFound, UnsafeMember
from nbdata.ffrecord import FileReader, GeneralDataset
from tests.client.converting.data import BYTES, PLAIN, convert, module, tree


def run(folder: Path, text: str, **options: object) -> nbdata.Report:
    report = nbdata.convert(module(folder, text), folder / "in", folder / "out", quiet=True, **options)
    assert isinstance(report, nbdata.Report)
    return report


def test_samples_meta_data_and_files_are_where_the_original_converter_puts_them(tmp_path: Path) -> None:
    text = PLAIN + "\ndef get_files_or_dirs():\n    return [('a.txt', None), ('sub', 'other'), 'plain.txt']\n"
    (tmp_path / "in" / "sub" / "deep").mkdir(parents=True)
    for name in ("a.txt", "plain.txt", "sub/b.txt", "sub/deep/c.txt"):
        (tmp_path / "in" / name).write_text(name)
    report = run(tmp_path, text)
    files = ["files/a.txt", "files/other/b.txt", "files/other/deep/c.txt", "files/plain.txt"]
    splits = [
        f"{split}/{name}"
        for split in ("train", "val")
        for name in ("ffrdata/PART_00000.ffr", "meta.json", "meta.pkl", "nbdata.json")
    ]
    assert tree(tmp_path / "out") == sorted([*files, *splits])
    assert report.counts == {"converted": 2, "copied": 4}
    assert (tmp_path / "out/files/other/deep/c.txt").read_text() == "sub/deep/c.txt"
    # Read as the original library does.
    reader = FileReader(tmp_path / "out/train/ffrdata")
    assert [pickle.loads(data)["index"] for data in reader.read(range(50))] == list(range(50))
    assert pickle.loads((tmp_path / "out/train/meta.pkl").read_bytes())["targets"].dtype == np.dtype("i4")
    assert json.loads((tmp_path / "out/val/meta.json").read_text())["targets"] == list(range(7))


def test_many_files_are_made_by_many_processes_in_the_order_of_the_samples(tmp_path: Path) -> None:
    report = run(tmp_path, BYTES, file_size="4KiB", workers=3)
    names = sorted(os.listdir(tmp_path / "out/train/ffrdata"))
    assert names == [f"PART_{number:05}.ffr" for number in range(6)]
    dataset = GeneralDataset(tmp_path / "out", "train")
    assert [one.split(b".")[0].decode() for one in dataset[list(range(30))]] == [
        f"train {n}" for n in range(30)
    ]
    assert report.counts == {"converted": 8}
    assert sorted(row.path for row in report.rows)[0] == "train/PART_00000.ffr"


def test_a_mini_set_has_the_first_samples_in_however_many_files_and_a_folder_of_its_own(
    tmp_path: Path,
) -> None:
    run(tmp_path, BYTES)
    before = tree(tmp_path / "out")
    run(tmp_path, BYTES, mini=15, file_size="4KiB")
    assert len(os.listdir(tmp_path / "mini/out/train/ffrdata")) == 3
    assert len(GeneralDataset(tmp_path / "out", "train", miniset=True)) == 15
    assert len(GeneralDataset(tmp_path / "out", "val", miniset=True)) == 10  # the split has no more than ten
    assert tree(tmp_path / "out") == before
    assert len(GeneralDataset(tmp_path / "out", "train")) == 30


def test_another_split_stays_when_one_is_converted_again(tmp_path: Path) -> None:
    run(tmp_path, BYTES)
    before = (tmp_path / "out/val/ffrdata/PART_00000.ffr").stat()
    only = BYTES.replace(', (Bytes("val", 10), "val")', "").replace('"train", 30', '"train", 31')
    report = run(tmp_path, only)
    assert report.counts == {"converted": 1}
    assert len(GeneralDataset(tmp_path / "out", "train")) == 31
    assert (tmp_path / "out/val/ffrdata/PART_00000.ffr").stat() == before


def test_the_same_line_again_converts_nothing_and_says_so(tmp_path: Path) -> None:
    run(tmp_path, BYTES)
    before = (tmp_path / "out/train/ffrdata/PART_00000.ffr").stat()
    assert run(tmp_path, BYTES).counts == {"unchanged": 2}
    assert (tmp_path / "out/train/ffrdata/PART_00000.ffr").stat() == before
    assert run(tmp_path, BYTES, overwrite="always").counts == {"converted": 2}
    with pytest.raises(BadOption, match="holds something else"):
        run(tmp_path, BYTES + "\n# changed", overwrite="never")


def test_a_folder_that_is_no_converted_split_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "out" / "train").mkdir(parents=True)
    (tmp_path / "out" / "train" / "thesis.txt").write_text("mine")
    with pytest.raises(BadOption, match="the name of split 'train' is taken"):
        run(tmp_path, BYTES, overwrite="always")
    assert tree(tmp_path / "out") == ["train/thesis.txt"]


@pytest.mark.in_ci("ffrdata/mine.ffr-True", "notes/a.txt-True", 1)
@pytest.mark.parametrize(
    ("mine", "has_record"),
    [
        ("thesis.tex", False),
        ("notes/a.txt", True),
        ("ffrdata/mine.ffr", True),
        ("ffrdata/more/PART_00000.ffr", False),
    ],
)
def test_a_split_with_a_file_of_the_user_is_not_replaced(tmp_path: Path, mine: str, has_record: bool) -> None:
    train = tmp_path / "out/train"
    run(tmp_path, BYTES)
    if not has_record:
        (train / "nbdata.json").unlink()
    (train / mine).parent.mkdir(exist_ok=True)
    (train / mine).write_text("mine")
    before = tree(train)
    named = re.escape(str(train / mine.removesuffix("/PART_00000.ffr").replace("/a.txt", "")))
    for dry in (True, False):
        with pytest.raises(BadOption, match=f"cannot be replaced: .*{named}"):
            run(tmp_path, BYTES, overwrite="always", dry_run=dry)
    assert tree(train) == before
    assert (train / mine).read_text() == "mine"


def test_a_folder_with_one_empty_file_of_records_is_not_replaced(tmp_path: Path) -> None:
    train = tmp_path / "out/train"
    train.mkdir(parents=True)
    (train / "mine.ffr").touch()
    (train / "thesis.tex").write_text("mine")
    with pytest.raises(BadOption, match="the name of split 'train' is taken"):
        run(tmp_path, BYTES)
    assert tree(tmp_path / "out") == ["train/mine.ffr", "train/thesis.tex"]


def test_a_file_of_the_user_that_comes_during_the_conversion_is_not_deleted(tmp_path: Path) -> None:
    run(tmp_path, BYTES)
    thesis = tmp_path / "out/train/thesis.tex"
    writes = f"""
    def get_meta(self):
        import pathlib
        pathlib.Path({str(thesis)!r}).write_text("mine")
"""
    with pytest.raises(BadOption, match=r"cannot be replaced: .*thesis\.tex"):
        run(tmp_path, BYTES.replace("\ndef get_datasets", writes + "\ndef get_datasets"))
    assert thesis.read_text() == "mine"
    assert len(GeneralDataset(tmp_path / "out", "train")) == 30


def test_a_split_of_the_original_converter_is_replaced(tmp_path: Path) -> None:
    from nbdata.ffrecord import FileWriter

    (tmp_path / "out/train/ffrdata").mkdir(parents=True)
    with FileWriter(tmp_path / "out/train/ffrdata/PART_00000.ffr", 1) as writer:
        writer.write_one(b"old")
    run(tmp_path, BYTES)
    assert len(GeneralDataset(tmp_path / "out", "train")) == 30


@pytest.mark.parametrize("source", ["out/train", "out/train/ffrdata", "out", ".", "link"])
@pytest.mark.parametrize("dry", [True, False])
@pytest.mark.in_ci("True-.", "True-out/train/ffrdata", 1)
def test_a_conversion_does_not_replace_what_it_reads(tmp_path: Path, source: str, dry: bool) -> None:
    run(tmp_path, BYTES)
    before = (tmp_path / "out/train/ffrdata/PART_00000.ffr").stat()
    (tmp_path / "link").symlink_to("out/train")
    path = module(tmp_path, BYTES.replace("30", "3"))
    with pytest.raises(BadOption, match="INPUT and the folder of split 'train' overlap"):
        nbdata.convert(path, tmp_path / source, tmp_path / "out", quiet=True, dry_run=dry)
    assert (tmp_path / "out/train/ffrdata/PART_00000.ffr").stat() == before


def test_a_conversion_refuses_a_name_in_its_input_from_the_first_run(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="INPUT and the folder of split 'train' overlap"):
        nbdata.convert(module(tmp_path, BYTES), tmp_path / "in", tmp_path / "in/new/out", quiet=True)
    assert tree(tmp_path / "in") == []


def test_a_plan_writes_nothing_and_says_how_many_samples_there_are(tmp_path: Path) -> None:
    plan = nbdata.Convert(
        str(module(tmp_path, BYTES)), str(tmp_path / "in"), str(tmp_path / "out"), mini=20
    ).plan()
    assert plan.details["splits"] == {"train": 20, "val": 10}
    assert plan.actions["convert"] == [2, 30_000 + 2 * 12 + 12 * 30]
    assert any("train: 20 of 30 samples in 1 file" in note for note in plan.notes)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "mini").exists()


@pytest.mark.in_ci(1)
@pytest.mark.parametrize(
    ("store", "sample", "kind"),
    [
        ("bytes", "b'abc'", b"abc"),
        ("npy", "np.arange(6, dtype='i2').reshape(2, 3)", np.arange(6, dtype="i2").reshape(2, 3)),
        ("pickle", "{'a': (1, 2.5, None)}", {"a": (1, 2.5, None)}),
    ],
)
def test_each_way_to_store_samples_is_read_back_without_being_told(
    tmp_path: Path, store: str, sample: str, kind: object
) -> None:
    text = BYTES.replace("return index", f"import numpy as np; return {sample}")
    run(tmp_path, text.replace("serialize_sample", "other"), store=store)
    found = GeneralDataset(tmp_path / "out", "train")[3]
    assert np.array_equal(found, kind) if store == "npy" else found == kind


def test_samples_of_a_worker_draw_random_numbers_of_their_own(tmp_path: Path) -> None:
    text = BYTES.replace("return index", "import random; return random.random()")
    run(tmp_path, text, file_size="4KiB", workers=2)
    assert len(set(GeneralDataset(tmp_path / "out", "train")[list(range(30))])) == 30


def test_meta_data_that_json_cannot_say_is_pickled_alone_and_told(tmp_path: Path) -> None:
    text = PLAIN.replace('"classes": ["a", "b"]', '7: "seven"')
    report = run(tmp_path, text)
    assert not (tmp_path / "out/train/meta.json").exists()
    assert any("has no meta.json" in note for note in report.notes)
    assert GeneralDataset(tmp_path / "out", "train").meta[7] == "seven"


def test_a_file_to_copy_that_is_not_there_is_told(tmp_path: Path) -> None:
    report = run(tmp_path, BYTES + "\ndef get_files_or_dirs():\n    return [('none.txt', None)]\n")
    assert any("none.txt, which is not there" in note for note in report.notes)


def test_nothing_is_copied_out_of_the_folder_of_copied_files(tmp_path: Path) -> None:
    text = BYTES + "\ndef get_files_or_dirs():\n    return [('a.txt', '../train/a.txt')]\n"
    with pytest.raises(UnsafeMember):
        run(tmp_path, text)
    assert not (tmp_path / "out").exists()


@pytest.mark.in_ci(3)
@pytest.mark.parametrize(
    ("old", "new", "error", "match"),
    [
        ("get_datasets", "get_dataset", BadOption, "has no function get_datasets"),
        ('(Bytes("train", 30), "train")', '(Bytes("train", 30), "files")', BadOption, "cannot be the name"),
        ('(Bytes("train", 30), "train")', '(Bytes("train", 30), "../x")', BadOption, "cannot be the name"),
        ('(Bytes("train", 30), "train")', '(Bytes("train", 30), "val")', BadOption, "two splits 'val'"),
        ('(Bytes("train", 30), "train")', '(iter([]), "train")', BadOption, "has no length"),
        ('(Bytes("train", 30), "train")', '"train"', BadOption, "something else than pairs"),
        ("return index", "raise ValueError('wrong')", NbdataError, r"sample 0 of split 'train': ValueError: wrong \("),
        (".encode()", "", NbdataError, "TypeError"),
        ('.ljust(1000, b".")', '.decode()', BadOption, "returned no bytes for sample 0"),
        ("class Bytes", "import none_of_that_name\nclass Bytes", NbdataError, "failed at the import"),
        ("class Bytes", "raise SystemExit(3)\nclass Bytes", NbdataError, "SystemExit"),
    ],
)  # fmt: skip
def test_a_module_that_keeps_no_contract_is_refused_and_leaves_nothing(
    tmp_path: Path, old: str, new: str, error: type[Exception], match: str
) -> None:
    assert old in BYTES
    with pytest.raises(error, match=match):
        run(tmp_path, BYTES.replace(old, new))
    assert not (tmp_path / "out").exists()


def test_the_traceback_of_the_module_is_the_cause_of_the_error(tmp_path: Path) -> None:
    with pytest.raises(
        NbdataError, match=r"ZeroDivisionError: division by zero \(dataset.py, line 10\)"
    ) as raised:
        run(tmp_path, BYTES.replace("return index", "return 1 / 0"))
    assert "return 1 / 0" in str(raised.value.__cause__)
    assert not raised.value.details


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no module"):
        nbdata.convert(tmp_path / "none.py", tmp_path, tmp_path / "out", quiet=True)
    with pytest.raises(NotFound, match="no folder INPUT"):
        nbdata.convert(module(tmp_path, BYTES), tmp_path / "none", tmp_path / "out", quiet=True)


def test_a_failing_sample_leaves_no_split_and_the_mended_line_goes_on(tmp_path: Path) -> None:
    fails = "import os\n        if index == 299 and os.path.exists('bad'): 1 / 0\n        return index"
    text = BYTES.replace("return index", fails).replace("30", "300")
    path = module(tmp_path, text)
    (tmp_path / "bad").touch()
    failed = convert(path, "in", "out", "--file-size", "60k", "--workers", "1", cwd=tmp_path)
    assert failed.returncode == 1
    assert "sample 299 of split 'train': ZeroDivisionError" in failed.stderr.splitlines()[-1]
    assert not (tmp_path / "out/train").exists()
    (tmp_path / "bad").unlink()
    done = convert(path, "in", "out", "--file-size", "60k", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"] == {"converted": 2, "unchanged": 4}
    assert len(GeneralDataset(tmp_path / "out", "train")) == 300
    assert not (tmp_path / "out/.nbdata").exists()


def test_what_the_module_prints_does_not_come_into_the_report_as_json(tmp_path: Path) -> None:
    done = convert(module(tmp_path, "print('loading')\n" + BYTES), "in", "out", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["counts"] == {"converted": 2}
    assert "loading" in done.stderr


def test_it_does_not_begin_where_it_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBDATA_QUOTA", f"20k:{tmp_path / 'out'}")
    with pytest.raises(NotEnoughSpace, match="--mini"):
        run(tmp_path, BYTES)
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_samples_that_are_larger_than_the_first_ones_do_not_go_over_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = BYTES.replace("30", "300").replace(".ljust(1000", ".ljust(1000 if sample < 100 else 1_000_000")
    monkeypatch.setenv("NBDATA_QUOTA", f"50MB:{tmp_path / 'out'}")
    with pytest.raises(NotEnoughSpace):
        run(tmp_path, text, workers=1)
    left = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert left < 50_000_000
    assert not (tmp_path / "out/train").exists()
    monkeypatch.setenv("NBDATA_QUOTA", f"300MB:{tmp_path / 'out'}")
    run(tmp_path, text, workers=1)
    assert len(GeneralDataset(tmp_path / "out", "train")) == 300


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for words in (
        {"dataset": "dataset.txt"},
        {"source": "s3://bucket/x"},
        {"mini": 0},
        {"key": "pts_filename"},
        {"dataset": "mmdet3d", "store": "npy"},
        {"dataset": "mmdet3d", "sweeps": True},
        {"workers": 1000},
        {"file_size": 10},
    ):
        with pytest.raises(BadOption):
            nbdata.Convert(**{"dataset": "a.py", "source": "in", "target": "out", **words})
    with pytest.raises(BadOption, match="background"):
        nbdata.convert("a.py", "in", "out", background=True)


def test_a_swap_that_a_kill_cut_off_is_finished_by_the_next_run(tmp_path: Path) -> None:
    from nbdata.client.converting.layout import unfinished_folder

    run(tmp_path, BYTES)
    unfinished = Path(unfinished_folder(str(tmp_path / "out")))
    # The state between the two renames: the old split is renamed, the new one has not got its name yet.
    unfinished.mkdir(parents=True)
    (tmp_path / "out/train").rename(unfinished / "train.old")
    assert run(tmp_path, BYTES).counts == {"unchanged": 2}
    assert len(GeneralDataset(tmp_path / "out", "train")) == 30


def test_modules_in_the_working_folder_do_not_stand_in_for_others(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "helper.py").write_text("COUNT = 12")
    text = "from helper import COUNT\n" + BYTES.replace("30", "COUNT")
    done = convert(module(tmp_path / "own", text), tmp_path / "own/in", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(GeneralDataset(tmp_path / "out", "train")) == 12


def test_the_working_folder_of_the_caller_is_that_of_the_module(tmp_path: Path) -> None:
    text = BYTES.replace("return index", "import os; return os.getcwd()")
    assert convert(module(tmp_path, text), "in", "out", cwd=tmp_path).returncode == 0
    assert GeneralDataset(tmp_path / "out", "train")[0].startswith(f"train {tmp_path}.".encode())


def test_bytecode_beside_the_module_is_neither_run_nor_written(tmp_path: Path) -> None:
    path = module(tmp_path, BYTES.replace('b"."', 'b"-"'))
    py_compile.compile(str(path), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    before = set(tree(tmp_path))
    run(tmp_path, BYTES)
    assert all(one.endswith(b".") for one in GeneralDataset(tmp_path / "out", "train")[list(range(30))])
    assert {name for name in tree(tmp_path) if not name.startswith("out/")} == before
