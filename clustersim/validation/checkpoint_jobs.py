"""The machines and jobs of published measurements of checkpoints, as scenarios.

Each constant is a component: a datasheet's, a published one, or the one measurement named beside it, used for all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from clustersim.checkpoint.engine import StepShape
from clustersim.run.pace import FixedStep

if TYPE_CHECKING:
    from clustersim.run.prepared import Prepared

GB = 1e9


@dataclass(frozen=True)
class KnownStep(FixedStep):
    """A step of known parts.

    Attributes:
        shape: what engines may know of it; unknown parts are taken to be hidden.
    """

    shape: StepShape = field(default_factory=StepShape)


def prepared(engine: dict[str, Any], *, gpus: int, per_node: int, bytes_total: float, step: KnownStep,
             storage: dict[str, Any], layout: dict[str, Any] | None = None, node: dict[str, Any] | None = None,
             failures: list[dict[str, Any]] | None = None, stages: dict[str, Any] | None = None,
             **end: Any) -> Prepared:  # fmt: skip
    """A job whose checkpoint has ``bytes_total`` bytes (2 B a parameter of weights, the rest optimizer).

    Args:
        engine: the scenario's ``checkpoint``.
        gpus, per_node: sizes of the job.
        bytes_total: each byte of the state once.
        step: the step.
        storage: the scenario's ``cluster.storage``.
        layout: the scenario's ``parallelism``.
        node: keys of the node.
        failures, stages: the scenario's ``failures`` and ``recovery.stages``.
        end: steps, tokens or duration.
    """
    from clustersim.checkpoint.state import parameters
    from clustersim.run.prepared import Prepared
    from clustersim.scenario.schema import Scenario
    from clustersim.workload.model import TransformerModel

    model = {"layers": 8, "hidden": 1024, "heads": 8, "ffn_hidden": 4096, "vocab": 32000}
    count = sum(parameters(TransformerModel.model_validate(model)))
    gpu = {"name": "any", "memory": 1e15, "memory_bandwidth": 1e12, "peak": {"bf16": 1e15}, "sms": 100,
           "link_bandwidth_per_direction": 300e9, "pcie_bandwidth_per_direction": 32e9, "power": 400.0}  # fmt: skip
    scale = bytes_total / (14.0 * count)
    host = {"gpu": gpu, "gpus": per_node, "nics": 2, "nic_bandwidth": 25e9, "host_memory": 1e15, **(node or {})}
    scenario = Scenario.model_validate({
        "model": model, "parallelism": layout or {"dp": gpus},
        "cluster": {"nodes": gpus // per_node, "node": _scaled(host, scale), "storage": _scaled(storage, scale)},
        "training": {"seq_len": 8, "global_batch": gpus, **end},
        "checkpoint": _scaled(engine, scale), "failures": failures or [],
        "recovery": {"kind": "restart", "stages": stages or {}},
    })  # fmt: skip
    return Prepared(scenario, step)


def _scaled(data: Any, scale: float) -> Any:
    """Bandwidths and sizes in units of a smaller model: the model's bytes ÷ scale, and so all that moves them."""
    names = ("bandwidth", "staging", "resident", "local_disk", "capacity")
    return {
        key: value / scale if isinstance(value, float) and any(name in key for name in names) else value
        for key, value in data.items()
    }


# -- DataStates-LLM on Polaris ------------------------------------------------------------------------------------------

POLARIS = {"pinned_bandwidth_per_gpu": 25.0 * GB, "nics": 2, "nic_bandwidth": 25.0 * GB}
"""A node of 4 A100-40GB: 25 GB/s pinned copies a GPU (arXiv 2406.10707, section 6.1)."""
LUSTRE = {"kind": "shared-filesystem", "write_bandwidth": 650.0 * GB, "read_bandwidth": 650.0 * GB,
          "per_node_bandwidth": 6.6 * GB, "latency": 0.005}  # fmt: skip
"""650 GB/s in all (section 6.1); 6.6 GB/s a node: 83 GB × 50 saves in 282 s on 2 nodes, 166 GB × 50 in 351 s on 4."""
DATASTATES: dict[str, dict[str, Any]] = {
    # 8 GPUs write 83 GB at 8.4 GB/s (figure 11a, 7B, interval 10): 1.05 GB/s a process of torch.save.
    "DeepSpeed sync torch.save": {"kind": "sync", "writer_bandwidth": 1.05 * GB},
    # 11.3 GB/s on the same row: 1.41 GB/s a GPU into memory that is not pinned. The flush is torch.save's; training
    # beside it runs at a third of its speed (figure 12b: 5.5 → 16.2 s).
    "Async ckpt (CheckFreq/Lightning-style)": {
        "kind": "checkfreq",
        "overlap": False,
        "copy_bandwidth": 1.41 * GB,
        "writer_bandwidth": 1.05 * GB,
        "slowdown": 3.0,
    },
    # 14.5 GB/s by 8 GPUs (figure 11a, 7B, interval 5): 1.81 GB/s a GPU with four threads.
    "TorchSnapshot": {"kind": "torchsnapshot", "writer_bandwidth": 1.81 * GB},
    # Copies at 13 GB/s a GPU beside training (figures 9 and 10 over data-parallel degrees: 0.27 s + bytes ÷ 13 GB/s).
    "DataStates-LLM": {"kind": "datastates", "copy_bandwidth": 13.0 * GB, "staging": 64.0 * GB},
}


def polaris(method: str, gpus: int, bytes_total: float, times: tuple[float, float, float], interval: int,
            iterations: int = 50) -> Prepared:  # fmt: skip
    """A run of DataStates-LLM's evaluation; ``times``: forward, backward, update, seconds."""
    step = sum(times)
    engine = {**DATASTATES[method], "interval": {"steps": interval}, "final": True}
    lustre = dict(LUSTRE)
    if method != "DataStates-LLM":
        del lustre["per_node_bandwidth"]  # streams of single processes are slower than the node's link
    return prepared(engine, gpus=gpus, per_node=4, bytes_total=bytes_total, node=POLARIS, storage=lustre,
                    step=KnownStep(step, shape=StepShape(step, times[2])), steps=iterations)  # fmt: skip


# -- GoCkpt -------------------------------------------------------------------------------------------------------------

V100S = {"pinned_bandwidth_per_gpu": 0.85 * 15.75 * GB, "local_disk_write": 2.0 * GB}
"""PCIe 3.0 × 16 at 0.85 (pinned), NVMe of 2 GB/s (DLRover's test machine)."""
GOCKPT_STATE = 1.24e9 * 14
GOCKPT_STEP_S = 256 / 830.0
"""256 tokens a step (assumed: the batch was not seen) at about 830 tokens/s without failures."""
GOCKPT: dict[str, dict[str, Any]] = {
    "GoCkpt-O": {"kind": "gockpt", "overlap_gradients": True},
    "Async-O": {"kind": "checkfreq", "overlap": True, "writer_bandwidth": 2.0 * GB},
    "Async (transfer-optimised)": {"kind": "async", "writer_bandwidth": 2.0 * GB},
    "DCP-Async": {"kind": "async", "copy_bandwidth": 1.41 * GB, "writer_bandwidth": 2.0 * GB},
    "DeepSpeed": {"kind": "sync", "writer_bandwidth": 1.05 * GB},
}
"""Pageable copies and torch.save at the rates measured by DataStates-LLM; the rest at the bus's and the disk's."""


def v100s(method: str, interval: int) -> Prepared:
    """Llama 3.2 1B on one GPU, a failure every 600 s in the mean."""
    engine = {**GOCKPT[method], "interval": {"steps": interval}}
    shape = StepShape(GOCKPT_STEP_S, 0.05 * GOCKPT_STEP_S)
    return prepared(engine, gpus=1, per_node=1, bytes_total=GOCKPT_STATE, node=V100S,
                    storage={"kind": "shared-filesystem", "write_bandwidth": 1e15, "read_bandwidth": 1e15, "latency": 0.0},
                    step=KnownStep(GOCKPT_STEP_S, shape=shape), duration=40 * 600.0,
                    failures=[{"component": "job", "severity": "process", "mtbf": 600.0, "detection": 0.0}])  # fmt: skip


# -- TRANSOM ------------------------------------------------------------------------------------------------------------

TRANSOM_COPY = 7.1e9 * 14 / 6.9 / 8
"""Into the node's cache, a GPU: the row 7B1 on 8 GPUs (99.4 GB in 6.9 s), used for all others."""


def transom(parameters: float, gpus: int, layout: dict[str, Any], storage_write: float = 1e15) -> Prepared:
    """A job of transom-checkpoint-engine's benchmark."""
    storage = {"kind": "shared-filesystem", "write_bandwidth": storage_write, "read_bandwidth": storage_write, "latency": 0.0}
    return prepared({"kind": "transom", "copy_bandwidth": TRANSOM_COPY, "interval": {"steps": 100}}, gpus=gpus, per_node=8,
                    bytes_total=parameters * 14, layout={"zero": 1, **layout}, storage=storage, steps=1000,
                    node={"nics": 8, "nic_bandwidth": 25.0 * GB}, step=KnownStep(10.0))  # fmt: skip
