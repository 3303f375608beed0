"""Measurement files: JSON lines, each with a checksum over itself and all lines before it.

    {"type": "header", "format": 1, "kind": "gemm", "device": {…}, "versions": {…}, …, "crc": "…"}
    {"type": "record", "key": {"m": 512, …}, "median_s": 1.2e-3, …, "crc": "…"}
    {"type": "end", "records": 57, "skipped": […], "crc": "…"}

The checksum (CRC-32 of the line without it, chained from the line before) finds a changed, missing or swapped line and
names it; a file without its ``end`` is one whose measurement did not finish. It guards against slips, not against
forgers.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clustersim.errors import InputError, Problem

FORMAT = 1


@dataclass(frozen=True)
class Measurements:
    """One measurement file.

    ``kind``: what was measured (``gemm``, ``all-reduce`` …); ``header``: device, versions, date; ``records``: one
    mapping a point, keys end in their unit; ``skipped``: what did not fit into the budget; ``sha256`` of the file.
    """

    name: str
    kind: str
    header: dict[str, Any]
    records: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    sha256: str = ""


def checksum(text: str, before: int) -> int:
    """CRC-32 of a line's text, chained from the checksum of the line before it."""
    return zlib.crc32(text.encode(), before)


def canonical(line: dict[str, Any]) -> str:
    """The text of a line that its checksum covers: sorted keys, no spaces, without ``crc``.

    Raises:
        ValueError: a value is NaN or infinite.
    """
    body = {key: value for key, value in line.items() if key != "crc"}
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sealed(line: dict[str, Any], before: int) -> tuple[str, int]:
    """(text to write, its checksum) of a line that follows a line with checksum ``before``."""
    text = canonical(line)
    code = checksum(text, before)
    return f'{text[:-1]},"crc":"{code:08x}"}}', code


def _lines(path: Path, shown: str) -> Iterator[tuple[int, dict[str, Any], int]]:
    """(number, content, checksum) of each line.

    Raises:
        InputError: naming the line that is no JSON or whose checksum is wrong.
    """
    code = 0
    data = _bytes_of(path, shown)
    for number, raw in enumerate(data.split(b"\n")[: -1 if data.endswith(b"\n") else None], start=1):
        try:
            line = json.loads(raw)
            if not isinstance(line, dict):
                raise ValueError
        except ValueError:
            raise _wrong(shown, number, "is no JSON object: the file is cut off or was edited here; measure anew") from None
        try:
            code = checksum(canonical(line), code)
        except ValueError:
            raise _wrong(shown, number, "holds a number that is not finite") from None
        if line.get("crc") != f"{code:08x}":
            raise _wrong(
                shown, number, "checksum is wrong: this line was changed, or a line before it is missing; measure anew"
            )
        yield number, line, code


def _bytes_of(path: Path, shown: str) -> bytes:
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            import gzip

            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(Problem("", f"cannot be read: {getattr(error, 'strerror', None) or error}", shown)) from None
    return data


def _wrong(shown: str, number: int, sentence: str) -> InputError:
    return InputError(Problem("", sentence, shown, number))


def read(path: Path | str) -> Measurements:
    """Read a measurement file (``.jsonl``, or ``.jsonl.gz``) and check every line.

    Raises:
        InputError: with the line that is damaged, or saying that the file has no end.
    """
    path, shown = Path(path), str(path)
    found: Measurements | None = None
    ended, number = False, 0
    for number, line, _ in _lines(path, shown):
        kind = line.get("type")
        if ended:
            raise _wrong(shown, number, "follows the end mark")
        if number == 1:
            found = _started(line, shown)
        elif kind == "record" and found is not None:
            found.records.append({key: value for key, value in line.items() if key not in ("type", "crc")})
        elif kind == "end" and found is not None:
            if line.get("records") != len(found.records):
                raise _wrong(shown, number, f"says {line.get('records')} records, the file has {len(found.records)}")
            found.skipped.extend(line.get("skipped", []))
            ended = True
        else:
            raise _wrong(shown, number, f"type '{kind}' is neither record nor end")
    if found is None:
        raise InputError(Problem("", "is empty", shown))
    if not ended:
        sentence = "the file stops here without its end mark: the measurement did not finish; run it again with the same -o"
        raise _wrong(shown, number, sentence)
    return Measurements(found.name, found.kind, found.header, found.records, found.skipped, file_hash(path))


def _started(line: dict[str, Any], shown: str) -> Measurements:
    if line.get("type") != "header" or not isinstance(line.get("kind"), str):
        raise _wrong(shown, 1, "is no header of a measurement file")
    if line.get("format") != FORMAT:
        raise _wrong(shown, 1, f"format {line.get('format')} is not known to this version (it reads {FORMAT})")
    header = {key: value for key, value in line.items() if key not in ("type", "crc", "format", "kind")}
    return Measurements(Path(shown).name, line["kind"], header)


def file_hash(path: Path | str) -> str:
    """SHA-256 of a file, hexadecimal."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


class Writer:
    """Writes one measurement file; an unfinished one is taken up where it stopped.

    Each record is on disk before the next is measured. Opening a file that has an end takes the end off again, so that
    a further run with more budget can measure what was skipped.
    """

    def __init__(self, path: Path | str, kind: str, header: dict[str, Any]) -> None:
        self.path = Path(path)
        self.done: dict[str, dict[str, Any]] = {}
        self._code = 0
        kept = self._kept(kind)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("w", encoding="utf-8")
        if not kept:
            self._write({"type": "header", "format": FORMAT, "kind": kind, **header})
        for line in kept:
            self._write(line)
            if line["type"] == "record":
                self.done[_key(line["key"])] = line

    def _kept(self, kind: str) -> list[dict[str, Any]]:
        """Good lines of an earlier run; a damaged last line (killed while writing) is dropped, other damage refused."""
        if not self.path.exists() or not self.path.stat().st_size:
            return []
        kept: list[dict[str, Any]] = []
        total = self.path.read_bytes().count(b"\n")
        try:
            for _, line, _ in _lines(self.path, str(self.path)):
                kept.append({key: value for key, value in line.items() if key != "crc"})
        except InputError as error:
            if (error.problems[0].line or 0) <= total:
                raise
        if kept and kept[0].get("kind") != kind:
            raise InputError(Problem("", f"holds {kept[0].get('kind')}, not {kind}", str(self.path), 1))
        return [line for line in kept if line["type"] != "end"]

    def has(self, key: dict[str, Any]) -> bool:
        """Whether the point is measured already."""
        return _key(key) in self.done

    def add(self, key: dict[str, Any], values: dict[str, Any]) -> None:
        """Write one point."""
        line = {"type": "record", "key": key, **values}
        self._write(line)
        self.done[_key(key)] = line

    def end(self, skipped: list[str]) -> None:
        """Write the end mark."""
        self._write({"type": "end", "records": len(self.done), "skipped": skipped})
        self._file.close()

    def close(self) -> None:
        """Close without an end mark: the file can be taken up again, not fitted."""
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        text, self._code = sealed(line, self._code)
        self._file.write(text + "\n")
        self._file.flush()


def _key(key: dict[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)
