"""Write ``docs/proofs.md`` from the report of ``make prove``: what was proven, in how many cases, and how long it took.

    make prove                             # writes build/proofs.xml
    python docs/proved.py build/proofs.xml
"""

from __future__ import annotations

import os
import platform
import sys
from collections import defaultdict
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

from clustersim import __version__

HEAD = """# Proofs

What `make prove` shows and `make test` leaves out: many seeds, failures at every event, kills at random moments, speeds.
Written by `python docs/proved.py build/proofs.xml` from its report; nothing here is written by hand.

Version {version}, {day}, {cores} cores ({machine}), Python {python}: {passed} of {all} cases passed{rest}.

| proof | cases | passed | minutes |
| --- | --- | --- | --- |
"""


def outcome(case: ElementTree.Element) -> str:
    """``passed``, ``skipped`` or ``failed``."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def title(name: str) -> str:
    """A test's name as a sentence."""
    words = name.removeprefix("test_").replace("_", " ")
    return words[:1].upper() + words[1:]


def page(*reports: Path) -> str:
    """The page of one JUnit report, or of several that cover a part each.

    Raises:
        OSError, ElementTree.ParseError: the report cannot be read.
    """
    rows: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    for case in (case for report in reports for case in ElementTree.parse(report).getroot().iter("testcase")):
        file = case.get("classname", "").replace(".", "/") + ".py"
        name = case.get("name", "").split("[")[0]
        rows[file, name].append((outcome(case), float(case.get("time", "0"))))
    results = [result for cases in rows.values() for result, _ in cases]
    left = {kind: results.count(kind) for kind in ("failed", "skipped") if kind in results}
    rest = "".join(f", {count} {kind}" for kind, count in left.items())
    lines = [HEAD.format(version=__version__, day=date.today().isoformat(), cores=os.cpu_count(), rest=rest,
                         machine=platform.machine(), python=platform.python_version(), passed=results.count("passed"),
                         all=len(results))]  # fmt: skip
    for (file, name), cases in sorted(rows.items()):
        passed, minutes = sum(result == "passed" for result, _ in cases), sum(seconds for _, seconds in cases) / 60
        lines.append(f"| {title(name)} (`{file}`) | {len(cases)} | {passed} | {minutes:.1f} |\n")
    return "".join(lines)


if __name__ == "__main__":
    Path(__file__).with_name("proofs.md").write_text(page(*map(Path, sys.argv[1:])), encoding="utf-8")
