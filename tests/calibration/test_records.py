"""Measurement files: what is written comes back; every damage is refused with its line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from clustersim.calibrate.records import Writer, read
from clustersim.errors import InputError


def written(path: Path, points: int = 4, end: bool = True) -> Path:
    writer = Writer(path, "gemm", {"device": {"name": "test"}})
    for m in range(1, points + 1):
        writer.add({"m": m}, {"median_s": m * 1e-3})
    if end:
        writer.end(["m=99: out of time"])
    else:
        writer.close()
    return path


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read(path)
    return str(caught.value)


def test_round_trip(tmp_path: Path) -> None:
    found = read(written(tmp_path / "gemm.jsonl"))
    assert (found.kind, found.header["device"]["name"]) == ("gemm", "test")
    assert [record["median_s"] for record in found.records] == [1e-3, 2e-3, 3e-3, 4e-3]
    assert found.skipped == ["m=99: out of time"]
    assert len(found.sha256) == 64


def test_compressed_files_are_read(tmp_path: Path) -> None:
    plain = written(tmp_path / "gemm.jsonl")
    packed = tmp_path / "gemm.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read(packed).records == read(plain).records
    packed.write_bytes(packed.read_bytes()[:-20])
    assert "cannot be read" in refused(packed)


def test_cut_inside_a_line_names_the_line(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl")
    path.write_bytes(path.read_bytes()[:-40])
    assert "a.jsonl:6: is no JSON object" in refused(path)


@pytest.mark.parametrize("kept", [1, 3, 5])
def test_cut_at_a_line_end_names_the_last_line(tmp_path: Path, kept: int) -> None:
    path = written(tmp_path / "a.jsonl")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:kept]))
    assert f"a.jsonl:{kept}: the file stops here without its end mark" in refused(path)


@pytest.mark.parametrize("line", [1, 2, 4, 6])
def test_an_edited_line_is_named(tmp_path: Path, line: int) -> None:
    path = written(tmp_path / "a.jsonl")
    lines = path.read_text().splitlines()
    changed = {1: ('"test"', '"best"'), 6: ('"records":4', '"records":5')}.get(line, ('"median_s":0.00', '"median_s":0.01'))
    assert changed[0] in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(*changed)
    path.write_text("\n".join(lines) + "\n")
    assert f"a.jsonl:{line}: checksum is wrong" in refused(path)


def test_a_removed_and_a_swapped_line_are_named(tmp_path: Path) -> None:
    lines = written(tmp_path / "a.jsonl").read_text().splitlines(keepends=True)
    gone, swapped = tmp_path / "gone.jsonl", tmp_path / "swapped.jsonl"
    gone.write_text("".join(lines[:2] + lines[3:]))
    swapped.write_text("".join([*lines[:2], lines[3], lines[2], *lines[4:]]))
    assert "gone.jsonl:3: checksum is wrong" in refused(gone)
    assert "swapped.jsonl:3: checksum is wrong" in refused(swapped)


def test_empty_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    assert "empty.jsonl" in refused(tmp_path / "empty.jsonl")
    assert "cannot be read" in refused(tmp_path / "missing.jsonl")


def test_an_interrupted_run_is_taken_up(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", points=3, end=False)
    path.write_bytes(path.read_bytes() + b'{"type":"record","key"')  # killed while writing
    writer = Writer(path, "gemm", {"device": {"name": "other"}})
    assert writer.has({"m": 3})
    assert not writer.has({"m": 4})
    writer.add({"m": 4}, {"median_s": 4e-3})
    writer.end([])
    found = read(path)
    assert [record["key"]["m"] for record in found.records] == [1, 2, 3, 4]
    assert found.header["device"]["name"] == "test"


def test_a_damaged_file_is_not_taken_up(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl")
    path.write_text(path.read_text().replace('"m":2', '"m":7'))
    with pytest.raises(InputError, match=r"a\.jsonl:3: checksum"):
        Writer(path, "gemm", {})
    with pytest.raises(InputError, match="holds gemm, not copy"):
        Writer(written(tmp_path / "b.jsonl"), "copy", {})
