"""The documentation holds: links lead somewhere, blocks and commands run, generated pages are fresh, commands exist."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clustersim.cli.app import COMMANDS, load_command
from tests.docs.run_page import pieces

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SMALL = """\
name: NAME
model: llama3-8b
cluster: {nodes: 2, spare_nodes: 1, node: dgx-h100, storage: tectonic}
training: {seq_len: 4096, global_batch: 64, duration: 1 d, recompute: selective}
parallelism: {tp: 2, zero: 1}
checkpoint: {engine: async, interval: 10 min}
failures: [{name: gpu, component: gpu, mtbf: 2000 h}, {name: crash, component: job, mtbf: 9 h, severity: process}]
repair: {time: 4 h}
simulation: {replicas: 2}
"""

def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    return {slug(match[1]) for match in re.finditer(r"^#+ (.*)$", prose(page), re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", prose(page))):
        if re.match(r"https?://[\w.-]+\.[a-z]+(/\S*)?$", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert file.is_relative_to(ROOT)
        if anchor:
            assert anchor in anchors(file), f"{page.name}: {target}"


def test_every_page_is_reached_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\(([\w-]+\.md)", index)) | set(re.findall(r"\(docs/([\w-]+\.md)", (ROOT / "README.md").read_text(encoding="utf-8")))
    missing = {page.name for page in PAGES[1:]} - linked - {"index.md"}
    assert missing == set()
    assert "docs/index.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def folder(tmp_path: Path) -> Path:
    """A folder with the scenarios that pages name."""
    for name in ("job", "other", "a", "b", "sync", "async"):
        text = SMALL.replace("NAME", name).replace("interval: 10 min", "interval: 20 min" if name in ("other", "b") else "interval: 10 min")
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    return tmp_path


def shown(page: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tests" / "docs" / "run_page.py"), str(page)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    ran = subprocess.run(command, cwd=folder(tmp_path), env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stdout[-1500:] + ran.stderr[-3000:]


def runs(page: Path) -> bool:
    return any(language in ("python", "console") for language, _ in pieces(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=lambda page: page.name)
def test_what_a_page_shows_runs(page: Path, tmp_path: Path) -> None:
    shown(page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    """Every `clustersim …` in running text names a command and options that there are."""
    for said in re.findall(r"`clustersim ([^`]+)`", prose(page)):
        words = said.split()
        if words[0].startswith("-"):
            continue
        assert words[0] in COMMANDS, f"{page.name}: clustersim {said}"
        command = load_command(words[0])
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for child in getattr(command, "commands", {}).values():
            known |= {option for parameter in child.params for option in parameter.opts}
        for option in (word.split("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)):
            assert option in known | {"--help", "-h"}, f"{page.name}: clustersim {said}"


def test_the_reference_is_fresh() -> None:
    """`python docs/generate.py` writes it anew."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "reference.md").read_text(encoding="utf-8") == module.reference()


def test_every_schema_key_is_in_the_reference() -> None:
    from clustersim.scenario.json_schema import scenario_schema

    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    for name, data in scenario_schema()["$defs"].items():
        if data.get("properties") and name[0].isupper():
            part = text.split(f"## {name}\n", 1)[1].split("\n## ", 1)[0]
            assert all(f"| `{key}` |" in part for key in data["properties"]), name
