"""Any file that a profile can come from: measurement files, and logs of other tools, told apart by their content."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from clustersim.calibrate import records
from clustersim.calibrate.logs import checkpoint_log, fio, kineto, nccl_tests
from clustersim.calibrate.records import Measurements
from clustersim.errors import InputError, Problem

KNOWN = ("a measurement file (.jsonl, .jsonl.gz), a log of nccl-tests, fio's JSON, a Kineto trace (.json, .json.gz), a "
         "torchtitan log with its checkpoints, or Lustre counters")  # fmt: skip


def load(path: Path | str) -> Measurements:
    """Read one file.

    Raises:
        InputError: the file cannot be read, is damaged, or is none of the known kinds.
    """
    shown = str(path)
    if shown.endswith((".jsonl", ".jsonl.gz")):
        return records.read(path)
    text = _text(Path(path), shown)
    found = _json(text, shown) if text.lstrip().startswith("{") else _log(text, shown)
    return replace(found, name=Path(shown).name, sha256=records.file_hash(path))


def _text(path: Path, shown: str) -> str:
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            import gzip

            data = gzip.decompress(data)
        return data.decode()
    except UnicodeDecodeError:
        raise InputError(Problem("", f"is not text; needs {KNOWN}", shown)) from None
    except (OSError, EOFError) as error:
        raise InputError(Problem("", f"cannot be read: {getattr(error, 'strerror', None) or error}", shown)) from None


def _json(text: str, shown: str) -> Measurements:
    try:
        data: Any = json.loads(text)
    except json.JSONDecodeError as error:
        sentence = f"is JSON that breaks off or is damaged here ({error.msg})"
        raise InputError(Problem("", sentence, shown, error.lineno, error.colno)) from None
    if fio.looks_like(data):
        return fio.parse(data, shown)
    if kineto.looks_like(data):
        return kineto.parse(data, shown)
    raise InputError(Problem("", f"is JSON of no known tool; needs {KNOWN}", shown))


def _log(text: str, shown: str) -> Measurements:
    if nccl_tests.looks_like(text):
        return nccl_tests.parse(text, shown)
    if checkpoint_log.looks_like_lustre(text):
        return checkpoint_log.parse_lustre(text, shown)
    if checkpoint_log.looks_like_checkpoints(text):
        return checkpoint_log.parse_checkpoints(text, shown)
    raise InputError(Problem("", f"is none of the kinds known: {KNOWN}", shown))
