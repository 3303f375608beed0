"""What a profile measured of copies, files and saves reaches a scenario; what the scenario states itself wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clustersim.checkpoint.engine import SaveSite
from clustersim.errors import InputError
from clustersim.run.prepared import Prepared
from clustersim.scenario.load import load
from clustersim.scenario.measured import Line, measured_values
from clustersim.scenario.schema import Scenario
from clustersim.study.points import Template, scenario_at
from clustersim.study.replicas import prepared_for
from clustersim.workload.fitted import MeasuredCurve, Quality, Range
from clustersim.workload.profile import Profile


def curve(op: str, fixed: float, rate: float) -> dict[str, Any]:
    """Seconds = fixed + bytes ÷ rate, from 1 MB to 1 GB."""
    ranges = (Range(low=1e6, high=1e9, latency=fixed, rate=rate),)
    return MeasuredCurve(op=op, ranges=ranges, quality=Quality(points=9, residual=0.0)).model_dump(mode="json")


CURVES = [
    curve("d2h pinned=True", 1e-5, 50e9), curve("storage-write", 0.002, 1.5e9), curve("storage-read", 0.001, 3e9),
    curve("checkpoint-dcp-async-blocking", 0.02, 10e9), curve("checkpoint-dcp-async-lost", 0.03, 40e9),
    curve("checkpoint-dcp-async-durable", 0.2, 0.8e9), curve("checkpoint-dcp-save", 0.11, 0.9e9), curve("checkpoint-dcp-load", 0.05, 2e9),
]  # fmt: skip
PROFILE: dict[str, Any] = {"name": "made-up", "curves": CURVES, "files_on": "shared"}
JOB: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": {"nodes": 2, "node": "dgx-h100", "storage": {"kind": "shared-filesystem", "write_bandwidth": "1 TB/s", "read_bandwidth": "1 TB/s"}},
    "training": {"seq_len": 4096, "global_batch": 64, "duration": "1 d", "recompute": "selective"},
    "parallelism": {"tp": 2, "pp": 1, "zero": 1},
    "checkpoint": {"engine": "async", "interval": "10 min"},
    "calibration": PROFILE,
}  # fmt: skip


def job(**changes: Any) -> Scenario:
    return load(JOB | changes)


def saved(scenario: Scenario) -> tuple[SaveSite, Any]:
    prepared: Prepared = prepared_for(scenario)
    return prepared.site, scenario.checkpoint.save(prepared.site)


def test_values_are_those_of_the_curves() -> None:
    scenario = job()
    node, engine = scenario.cluster.node, scenario.checkpoint
    assert node.device_to_host == pytest.approx(50e9, rel=1e-12)
    assert engine.planning == pytest.approx(0.05)  # what blocks, and what is taken from training beside
    assert engine.copy_bandwidth == pytest.approx(1 / (1 / 10e9 + 1 / 40e9))
    assert engine.writer_bandwidth == pytest.approx(1 / (1 / 0.8e9 - 1 / 10e9 - 1 / 40e9))
    assert engine.reader_bandwidth == pytest.approx(2e9)
    assert scenario.cluster.storage.latency == pytest.approx(0.002)


def test_a_save_takes_what_was_measured() -> None:
    """Stall and time until durable of one GPU's bytes, read off the curves themselves."""
    scenario = job()
    site, (staged, upload) = saved(scenario)
    each = site.per_gpu
    known = {item["op"]: MeasuredCurve.model_validate(item) for item in CURVES}
    blocking, lost, durable = (
        known[f"checkpoint-dcp-async-{name}"].seconds(each) for name in ("blocking", "lost", "durable")
    )
    assert staged.seconds == pytest.approx(blocking + lost, rel=1e-9)
    storage = scenario.cluster.storage
    until = staged.seconds + storage.alone_s(upload.bytes, "write", scenario.cluster.nodes, upload.per_client)
    fixed = Line.of(known["checkpoint-dcp-async-durable"]).fixed
    assert until == pytest.approx(
        durable - fixed + 0.05, rel=1e-9
    )  # the durable curve's own fixed part is planning, opening …


def test_a_synchronous_save_takes_what_was_measured() -> None:
    scenario = job(checkpoint={"engine": "sync", "interval": "10 min"})
    site, transfers = saved(scenario)
    upload = transfers[-1]
    took = sum(item.seconds for item in transfers)
    took += scenario.cluster.storage.alone_s(upload.bytes, "write", scenario.cluster.nodes, upload.per_client)
    measured = MeasuredCurve.model_validate(curve("checkpoint-dcp-save", 0.11, 0.9e9))
    assert took == pytest.approx(measured.seconds(site.per_gpu), rel=1e-9)


def test_a_load_reads_no_faster_than_was_measured() -> None:
    site, _ = saved(job())
    load_ = job().checkpoint.load(site)
    assert load_.per_client == pytest.approx(8 * 2e9)
    assert job(calibration=None).checkpoint.load(site).per_client is None


def test_what_the_scenario_states_wins() -> None:
    own = {"engine": "async", "interval": "10 min", "planning": "3 s", "copy_bandwidth": "1 GB/s"}
    node = {"preset": "dgx-h100", "pinned_bandwidth_per_gpu": "20 GB/s"}
    scenario = job(checkpoint=own, cluster=JOB["cluster"] | {"node": node})
    assert (scenario.checkpoint.planning, scenario.checkpoint.copy_bandwidth) == (3.0, 1e9)
    assert scenario.cluster.node.device_to_host == 20e9
    assert scenario.calibration is not None
    assert set(scenario.calibration.used_for) == {
        "cluster.storage.latency",
        "checkpoint.writer_bandwidth",
        "checkpoint.reader_bandwidth",
    }
    stated = job(checkpoint={"engine": "async", "interval": "10 min", "stall": "4 s"})
    assert stated.calibration is not None
    assert "checkpoint.planning" not in stated.calibration.used_for


def test_the_resolved_scenario_says_where_values_come_from(tmp_path: Path) -> None:
    scenario = job()
    assert scenario.calibration is not None
    told = scenario.calibration.used_for
    assert told["cluster.node.pinned_bandwidth_per_gpu"].measurement == "rate of d2h pinned=True"
    assert told["cluster.node.pinned_bandwidth_per_gpu"].instead_of == "46.8 GB/s"
    assert told["checkpoint.planning"].measurement == "fixed part of dcp-async-blocking and -lost"
    assert "measurement: fixed part of dcp-async-blocking and -lost" in scenario.resolved()
    path = tmp_path / "resolved.yaml"
    path.write_text(scenario.resolved(), encoding="utf-8")
    again = load(str(path))
    assert again == scenario
    assert again.sha256 == scenario.sha256
    changed = load(str(path), ["checkpoint.planning=7 s"])
    assert changed.checkpoint.planning == 7.0
    assert changed.calibration is not None
    assert "checkpoint.planning" not in changed.calibration.used_for


def test_another_profile_takes_its_place() -> None:
    """What came from a profile goes with it; what the user changes stays."""
    scenario = job()
    slower = PROFILE | {"name": "slower", "curves": [curve("d2h pinned=True", 0.0, 10e9)]}
    for other in (scenario.replace("calibration", slower), scenario_at(scenario, {"calibration": slower})):
        assert other.cluster.node.device_to_host == pytest.approx(10e9)
        assert other.checkpoint.planning == 0.0
        assert other.replace("calibration", None).cluster.node.device_to_host == pytest.approx(46.8e9)
        assert other.calibration is not None
        assert list(other.calibration.used_for) == ["cluster.node.pinned_bandwidth_per_gpu"]
    none = scenario.replace("calibration", None)
    assert none.cluster.node.device_to_host == job(calibration=None).cluster.node.device_to_host
    kept = scenario.replace("checkpoint.interval", "20 min")
    assert kept.checkpoint.planning == scenario.checkpoint.planning
    other_engine = Template.of(scenario)({"checkpoint": {"engine": "sync", "interval": "10 min"}})
    assert other_engine.checkpoint.planning == pytest.approx(0.108)


def test_files_of_a_local_disk_are_the_nodes() -> None:
    scenario = job(calibration=PROFILE | {"files_on": "local"})
    node = scenario.cluster.node
    assert (node.local_disk_write, node.local_disk_read) == (pytest.approx(1.5e9), pytest.approx(3e9))
    assert scenario.checkpoint.writer_bandwidth is None
    unsaid = job(calibration=PROFILE | {"files_on": None})
    assert unsaid.cluster.node.local_disk_write == job(calibration=None).cluster.node.local_disk_write
    assert unsaid.checkpoint.planning == pytest.approx(0.05)  # what blocks is no matter of where the files lie


def test_a_file_names_the_profile_and_its_mistakes_stay_where_they_are(tmp_path: Path) -> None:
    from clustersim.cli.fit_profile import profile_yaml

    (tmp_path / "mine.yaml").write_text(profile_yaml(Profile.model_validate(PROFILE)), encoding="utf-8")
    text = job(calibration=None).resolved().replace("calibration: null", "calibration: mine.yaml")
    text = "\n".join(
        line for line in text.splitlines() if not line.strip().startswith(("pinned_bandwidth", "planning:"))
    )
    (tmp_path / "job.yaml").write_text(text, encoding="utf-8")
    scenario = load(str(tmp_path / "job.yaml"))
    assert scenario.cluster.node.device_to_host == pytest.approx(50e9)
    assert scenario.checkpoint.planning == pytest.approx(0.05)
    (tmp_path / "mine.yaml").write_text("curves: 3\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"calibration: .*curves"):
        load(str(tmp_path / "job.yaml"))


def test_a_curve_that_misses_its_own_points_is_for_reading_only() -> None:
    wild = curve("d2h pinned=True", 1e-5, 1e9)
    wild["quality"]["residual"] = 0.6
    scenario = job(calibration={"name": "wild", "curves": [wild]})
    assert scenario.cluster.node.device_to_host == pytest.approx(46.8e9)
    assert scenario.calibration is not None
    assert scenario.calibration.used_for == {}


def test_nothing_is_made_up() -> None:
    assert measured_values(Profile(), "async") == []
    no_bytes = curve("d2h pinned=True", 1e-5, 1e9)
    no_bytes["ranges"][0]["rate"] = None
    assert measured_values(Profile.model_validate({"curves": [no_bytes]}), "async") == []
