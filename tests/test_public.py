"""The public names: frozen here so that growth is a reviewed change, lazy, and importable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import clustersim
from clustersim.distributions import Distribution

ROOT = Path(__file__).parents[1]

PUBLIC = ["ClusterSimError", "ImpossibleError", "InputError", "NegativeAnswer", "RunResult", "Scenario", "__version__", "load",
          "run_replicas", "simulate", "step"]  # fmt: skip


def test_public_names_are_these() -> None:
    assert sorted(clustersim.__all__) == PUBLIC
    assert set(PUBLIC) <= set(dir(clustersim))


@pytest.mark.parametrize("name", PUBLIC)
def test_each_is_there_and_explained(name: str) -> None:
    found = getattr(clustersim, name)
    assert name == "__version__" or found.__doc__


def test_no_other_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        clustersim.lod  # noqa: B018


def test_one_version_everywhere() -> None:
    declared = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared is not None
    assert declared[1] == clustersim.__version__


def test_the_readme_s_python_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python block of the README, in order, as a reader would paste it; a part that one defines goes away again."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(Distribution, "kinds", dict(Distribution.kinds))
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_the_readme_names_real_commands_and_files() -> None:
    from clustersim.cli.app import COMMANDS

    text = (ROOT / "README.md").read_text()
    for command in re.findall(r"^ {4}(?:\.venv/bin/)?clustersim (\w+)", text, re.MULTILINE):
        assert command in COMMANDS
    for path in re.findall(r"`((?:scenarios|docs|clustersim)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
