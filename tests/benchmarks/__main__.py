"""``make bench``: every measurement of every ``bench_*.py`` beside its target; exit 1 if one is missed.

Name modules to run these alone: ``make bench ARGS=commands``.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main(chosen: list[str]) -> int:
    """Print all measurements; 1 if a target was missed."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))
    missed = 0
    for name in names:
        if chosen and name.removeprefix("bench_") not in chosen:
            continue
        print(f"-- {name.removeprefix('bench_')}", flush=True)
        for result in importlib.import_module(f"tests.benchmarks.{name}").results():
            print(result, flush=True)
            missed += not result.good
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
