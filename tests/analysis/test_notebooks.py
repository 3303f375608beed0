"""Every notebook of ``analysis/`` runs from start to end; what its text claims is asserted inside."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

ANALYSIS = Path(__file__).parents[2] / "analysis"
SCRIPTS = sorted(ANALYSIS.glob("*.py"))


def test_there_are_six() -> None:
    assert [path.stem for path in SCRIPTS] == ["calibrating_and_checking", "checkpoint_interval", "first_what_if",
                                               "from_a_published_table", "pipeline_schedules", "spares_from_a_log"]  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_and_notebook_are_a_pair(script: Path) -> None:
    """Cell by cell the same text; `jupytext --sync analysis/*.py` makes them so."""
    jupytext = pytest.importorskip("jupytext")
    cells = [[(cell.cell_type, cell.source) for cell in jupytext.read(path).cells] for path in (script, script.with_suffix(".ipynb"))]
    assert cells[0] == cells[1]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_claims_and_asserts(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert text.count("\nassert ") + text.count("\n    assert ") >= 3
    assert text.count("# %% [markdown]") >= 4


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_runs(script: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        notebook = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
        client = nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(ANALYSIS)}})
        client.execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
