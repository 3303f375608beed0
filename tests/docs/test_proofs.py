"""The page of proofs: written from a report as it is, and with a row for every proof there is."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def proved() -> ModuleType:
    spec = importlib.util.spec_from_file_location("proved", ROOT / "docs" / "proved.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def proofs() -> Iterator[str]:
    """Names of all tests that ``make prove`` runs."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            marks = [ast.unparse(mark) for mark in getattr(node, "decorator_list", [])]
            if any(mark.startswith("pytest.mark.prove") for mark in marks):
                yield node.name  # type: ignore[attr-defined]


def test_every_proof_has_a_row(proved: ModuleType) -> None:
    page = (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8")
    missing = [name for name in proofs() if f"| {proved.title(name)} (`" not in page]
    assert not missing, f"run `make prove`, then `python docs/proved.py build/proofs.xml`: no row for {missing}"


def test_the_page_counts_cases_failures_and_minutes(proved: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "proofs.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="tests.a.test_b" name="test_it_holds[1]" time="60"/>'
        '<testcase classname="tests.a.test_b" name="test_it_holds[2]" time="30"><failure/></testcase>'
        '<testcase classname="tests.a.test_c" name="test_of_a_browser" time="0"><skipped/></testcase>'
        "</testsuite></testsuites>", encoding="utf-8")  # fmt: skip
    page = proved.page(report)
    assert "1 of 3 cases passed, 1 failed, 1 skipped" in page
    assert "| It holds (`tests/a/test_b.py`) | 2 | 1 | 1.5 |" in page
    assert "| Of a browser (`tests/a/test_c.py`) | 1 | 0 | 0.0 |" in page
