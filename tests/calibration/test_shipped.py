"""The profiles that ship: they load, scenarios take them, and what was measured here is fitted from the raw files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clustersim.calibrate.build import build_profile
from clustersim.calibrate.load import load as measurements
from clustersim.scenario.load import load
from clustersim.scenario.profile import profile_data
from clustersim.workload.profile import Profile

FOLDER = Path(__file__).parents[2] / "profiles"
SHIPPED = sorted(FOLDER.glob("*.yaml"))
JOB: dict[str, Any] = {
    "model": {"layers": 8, "hidden": 512, "ffn_hidden": 2048, "heads": 8, "vocab": 32000},
    "cluster": {"nodes": 1, "node": "dgx-h100", "storage": "tectonic"},
    "training": {"seq_len": 512, "global_batch": 64, "steps": 10, "precision": "fp32"},
    "checkpoint": {"engine": "async", "interval": {"steps": 5}},
}  # fmt: skip


def shipped(path: Path) -> Profile:
    return Profile.model_validate(profile_data(str(path)), context={"units": "required"})


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_scenario_takes_it(path: Path) -> None:
    from clustersim.pipeline.step import StepModel

    scenario = load(JOB | {"calibration": str(path)})
    assert scenario.calibration is not None
    assert scenario.calibration.name == path.stem
    assert StepModel.of(scenario).step_time().seconds > 0


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_it_says_where_it_comes_from(path: Path) -> None:
    profile = shipped(path)
    assert profile.provenance is not None
    assert profile.provenance.device
    assert profile.provenance.files or profile.provenance.notes


@pytest.mark.parametrize(
    "folder", sorted(path for path in FOLDER.iterdir() if path.is_dir()), ids=lambda path: path.name
)
def test_it_is_the_fit_of_the_raw_files_beside_it(folder: Path) -> None:
    """Hashes and notes to the letter, coefficients and intervals to 0.1 % (other processors round otherwise)."""
    target = folder.with_suffix(".yaml")
    known = shipped(target)
    files = [measurements(str(path)) for path in sorted(folder.glob("*.jsonl.gz"))]
    assert {item.name for item in files} >= {item.name for item in (known.provenance.files if known.provenance else ())}
    again = build_profile(
        [item for item in files if item.kind not in ("model", "trace")], folder.name, None, known.files_on
    )
    same(again.model_dump(mode="json"), known.model_dump(mode="json"))


def same(a: Any, b: Any, path: str = "") -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), path
        for number, pair in enumerate(zip(a, b, strict=True)):
            same(*pair, f"{path}.{number}")
    elif isinstance(a, str) and isinstance(b, str) and a != b:  # quantities: the same unit, nearly the same number
        (one, unit), (other, its) = a.rsplit(" ", 1), b.rsplit(" ", 1)
        assert unit == its, path
        assert float(one) == pytest.approx(float(other), rel=1e-3), path
    else:
        assert a == (pytest.approx(b, rel=1e-3, abs=1e-18) if isinstance(b, float) else b), path
