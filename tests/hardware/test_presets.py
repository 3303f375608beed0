"""Every shipped preset loads with units required, and every value in it names its source."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from clustersim.faults.failure import FailureModel
from clustersim.hardware.fabric import Fabric
from clustersim.hardware.gpu import Gpu
from clustersim.hardware.network import Network
from clustersim.hardware.node import Node
from clustersim.hardware.storage import Storage
from clustersim.part import preset_data, preset_names
from clustersim.workload.model import TransformerModel
from clustersim.workload.stack import Stack

CONTRACT_GPUS = [
    *("p100", "v100-16g", "v100-32g", "a100-40g", "a100-80g", "a800-80g"),
    *("h100-sxm", "h100-pcie", "h100-96g", "h200", "h800"),
    *("b200", "b300", "gb200", "gb300", "rtx-3090", "rtx-4090", "mi250x", "mi300x", "mi355x"),
]
FOLDERS: dict[str, Any] = {
    "gpus": Gpu,
    "nodes": Node,
    "models": TransformerModel,
    "networks": Network,
    "storage": Storage,
    "stacks": Stack,
    "fabrics": Fabric,
}
ALL = [(folder, name) for folder in FOLDERS for name in preset_names(folder)]
UNITS = {"units": "required"}


def paths_of(value: Any, path: str = "") -> list[str]:
    """Dotted paths of a mapping's leaves."""
    if not isinstance(value, dict):
        return [path]
    return [leaf for key, item in value.items() for leaf in paths_of(item, f"{path}.{key}" if path else str(key))]


def has_source(path: str, sources: dict[str, str]) -> bool:
    """A source of the key itself, of a mapping that holds it, or (``all``) of the whole preset."""
    if sources.get("all", "").strip():
        return True
    words = path.split(".")
    return any(sources.get(".".join(words[:n]), "").strip() for n in range(1, len(words) + 1))


@pytest.mark.parametrize(("folder", "name"), ALL)
def test_every_preset_loads_with_units(folder: str, name: str) -> None:
    TypeAdapter(FOLDERS[folder]).validate_python(name, context=UNITS)


@pytest.mark.parametrize(("folder", "name"), ALL)
def test_every_value_names_its_source(folder: str, name: str) -> None:
    data = preset_data(folder, name)
    sources = data["sources"]
    values = {key: item for key, item in data.items() if key != "sources"}
    missing = [path for path in paths_of(values) if not has_source(path, sources)]
    assert not missing, f"{folder}/{name}: no source for {missing}"
    known = {
        path[: len(key)] for key in sources for path in paths_of(values) if path == key or path.startswith(f"{key}.")
    }
    topics = {"floor", "ramp", "all"}  # headings that stand for several keys of a measured curve
    fields = set(getattr(FOLDERS[folder], "model_fields", {}))  # a source may explain a field that keeps its default
    unknown = set(sources) - topics - known - fields
    assert not unknown, f"{folder}/{name}: sources of keys that are not there: {unknown}"


def test_no_folder_of_presets_is_left_out() -> None:
    from importlib.resources import files

    shipped = {folder.name for folder in (files("clustersim.hardware") / "presets").iterdir() if folder.is_dir()}
    assert shipped == {*FOLDERS, "failures"}


@pytest.mark.parametrize(("folder", "name"), ALL)
def test_a_source_says_what_it_is(folder: str, name: str) -> None:
    """A document with its numbers, another key that has it, or the word that it is assumed: never an empty gesture."""
    sources = preset_data(folder, name)["sources"]
    for key, said in sources.items():
        other = said.removeprefix("as ")
        assert said.startswith("assumed") or other in sources or len(said) >= 11, f"{folder}/{name}: {key}: {said}"


@pytest.mark.parametrize("name", preset_names("fabrics"))
def test_what_fabrics_say_of_their_tables_is_so(name: str) -> None:
    """The asymptote of the largest ring measured is the share of the law, and its floor twice the latency."""
    fabric = Fabric.preset(name)
    if fabric.ring is None:
        return
    ranks = max(fabric.ring.curves)
    curve = fabric.ring.curves[ranks]
    bus = 2 * (ranks - 1) / ranks * curve.rate
    assert bus / fabric.link == pytest.approx(fabric.share, abs=0.06)
    assert 2 * fabric.latency == pytest.approx(curve.seconds[0], rel=0.2)


@pytest.mark.parametrize("name", preset_names("failures"))
def test_every_failure_key_names_its_source(name: str) -> None:
    data = preset_data("failures", name)
    keys = {key for cause in data["failures"] for key in cause} - {"name"}
    assert keys <= {key.removeprefix("failures.") for key in data["sources"]}
    adapter = TypeAdapter(tuple[FailureModel, ...])
    assert len(adapter.validate_python(data["failures"], context=UNITS)) == len(data["failures"])


def test_gpus_of_the_contract_are_there() -> None:
    assert set(CONTRACT_GPUS) <= set(preset_names("gpus"))


def test_failure_sets_of_the_contract_are_there() -> None:
    wanted = {"llama3-h100", "rsc-1", "rsc-2", "byterobust-dense", "byterobust-moe", "bloom", "opt-175b"}
    assert wanted <= set(preset_names("failures"))


@pytest.mark.parametrize("name", preset_names("gpus"))
def test_gpu_values_are_consistent(name: str) -> None:
    gpu = Gpu.preset(name)
    assert gpu.efficiency.gemm.keys() <= gpu.peak.keys(), "an efficiency without a peak"
    assert {p for p in gpu.peak if p in ("fp16", "bf16", "fp8")} <= gpu.efficiency.gemm.keys()
    assert all(0 < share <= 1 for share in gpu.efficiency.gemm.values())
    order = [gpu.peak[p] for p in ("fp32", "tf32", "bf16", "fp8", "nvfp4") if p in gpu.peak]
    assert order == sorted(order), "a narrower format is never slower"
    assert gpu.link_bandwidth_per_direction >= gpu.pcie_bandwidth_per_direction


def events(name: str, gpus: int, nodes: int, hours: float) -> dict[str, float]:
    """Expected events of each cause; a job counts once."""
    units = {"gpu": gpus, "node": nodes, "job": 1}
    causes = TypeAdapter(tuple[FailureModel, ...]).validate_python(preset_data("failures", name)["failures"])
    return {c.name: units[c.component] * hours * 3600 / c.mtbf for c in causes}  # type: ignore[attr-defined]


def planned(name: str) -> set[str]:
    return {cause["name"] for cause in preset_data("failures", name)["failures"] if cause.get("planned")}


def test_llama3_counts_of_54_days() -> None:
    counts = events("llama3-h100", 16384, 2048, 54 * 24)
    unexpected = {cause: n for cause, n in counts.items() if cause not in planned("llama3-h100")}
    assert len(unexpected) == 18
    assert sum(unexpected.values()) == pytest.approx(419, abs=1e-3)
    assert sum(counts[cause] for cause in planned("llama3-h100")) == pytest.approx(47, abs=1e-3)
    assert counts["faulty-gpu"] == pytest.approx(148, abs=1e-3)
    assert counts["hbm3-memory"] == pytest.approx(72, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "days", "total", "manual"), [("byterobust-dense", 90, 175, 20), ("byterobust-moe", 30, 125, 31)]
)
def test_byterobust_counts(name: str, days: float, total: float, manual: float) -> None:
    counts = events(name, 9600, 1200, days * 24)
    assert sum(counts.values()) == pytest.approx(total, rel=1e-5)
    assert sum(counts[cause] for cause in planned(name)) == pytest.approx(manual, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "per_1000_node_days"), [("rsc-1", 6.5), ("rsc-2", 2.34), ("bloom", 2.976), ("opt-175b", 16.13)]
)
def test_rates_per_1000_node_days(name: str, per_1000_node_days: float) -> None:
    assert sum(events(name, 8000, 1000, 24).values()) == pytest.approx(per_1000_node_days, rel=1e-3)


@pytest.mark.parametrize("name", preset_names("nodes"))
def test_nodes_are_consistent(name: str) -> None:
    node = Node.preset(name)
    assert node.network_bandwidth <= node.gpus * node.link_bandwidth
    assert node.host_memory >= node.gpu.memory
    domain = node.intra_node.domain_gpus
    assert domain is None or domain % node.gpus == 0


def test_a_single_value_of_a_preset_can_change() -> None:
    gpu = Gpu.model_validate({"preset": "h100-sxm", "power": "500 W"}, context=UNITS)
    assert (gpu.power, gpu.sms) == (500.0, 132)
