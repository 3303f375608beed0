"""Wheel and sdist: they build, carry presets and pages, and the wheel alone runs the main scenario."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a wheel and an sdist; the build backend is the installed one, so no network is needed."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return out


def data_files() -> set[str]:
    """Everything below the package that is no Python file, as the repository has it."""
    listed = subprocess.run(["git", "ls-files", "clustersim"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split() if listed.returncode == 0 else [
        str(path.relative_to(ROOT)) for path in (ROOT / "clustersim").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]  # fmt: skip
    return {name for name in names if not name.endswith((".py", ".pyc")) and (ROOT / name).is_file()}


def test_the_wheel_carries_all_data(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert data_files() <= names
    assert "clustersim/hardware/presets/gpus/h100-sxm.yaml" in names
    assert "clustersim/scenario/starter.yaml" in names
    assert "clustersim/py.typed" in names
    assert "clustersim/scenarios/papers/airesim-default.yaml" in names, "validate reliability replays it"
    assert not any(name.startswith(("tests/", "scenarios/")) for name in names)


def test_the_sdist_carries_all_data_and_the_scenarios(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    names = {name.split("/", 1)[1] for name in tarfile.open(sdist).getnames() if "/" in name}
    assert data_files() <= names
    assert {"scenarios/llama3-405b-16k.yaml", "LICENSE", "README.md", "CHANGELOG.md", "Makefile", ".ci/run"} <= names


def test_metadata(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(archive.read(name).decode() for name in archive.namelist() if name.endswith("METADATA"))
        entries = next(archive.read(name).decode() for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert "License-Expression: Apache-2.0" in metadata
    for extra in ("fast", "dask", "calibrate", "notebook", "test", "dev"):
        assert f"Provides-Extra: {extra}" in metadata
    core = [line.split()[1] for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert not any(line.startswith(("torch", "numba", "dask")) for line in core)
    assert "clustersim = clustersim.cli.main:main" in entries


def test_the_wheel_alone_runs(built: Path, tmp_path: Path) -> None:
    """The wheel's files first on the path and the repository nowhere: libraries are those of this environment."""
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    scenario = tmp_path / "main.yaml"
    scenario.write_text((ROOT / "scenarios" / "llama3-405b-16k.yaml").read_text())
    code = (f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); import clustersim; "
            f"assert clustersim.__file__.startswith({str(tmp_path)!r}); from clustersim.cli.main import main; "
            f"main(['run', {str(scenario)!r}, '--json', '--replicas', '1'])")  # fmt: skip
    ran = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["scenario"] == "llama3-405b-16k"


@pytest.mark.prove
def test_the_wheel_in_a_fresh_environment(built: Path, tmp_path: Path) -> None:
    """Installs the declared dependencies and nothing else (needs a package index)."""
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel)], check=True)
    scenario = tmp_path / "main.yaml"
    scenario.write_text((ROOT / "scenarios" / "llama3-405b-16k.yaml").read_text())
    command = [tmp_path / "env" / "bin" / "clustersim", "run", str(scenario), "--json", "-o", str(tmp_path / "out")]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["replicas"] == 20
    assert (tmp_path / "out" / "report.html").exists()
