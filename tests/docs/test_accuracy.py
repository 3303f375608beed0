"""Accuracy that the pages state is what the golden summary holds."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"^\| ([a-z0-9-]+) \| (\d+) \| ([\d.]+) % \| (-?[\d.]+) % \|", re.MULTILINE)


def test_the_table_of_parallelism_is_that_of_the_golden_summary() -> None:
    golden = json.loads((ROOT / "tests" / "golden" / "validation.json").read_text(encoding="utf-8"))
    told = LINE.findall((ROOT / "docs" / "parallelism.md").read_text(encoding="utf-8"))
    assert len(told) > 20
    stale = [suite for suite, rows, median, bias in told
             if int(rows) != golden[suite]["rows"]
             or abs(float(median) - golden[suite]["median_abs_error_pct"]) > 0.06
             or abs(float(bias) - golden[suite]["bias_pct"]) > 0.06]  # fmt: skip
    assert stale == []
