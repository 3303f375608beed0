"""From a row to a job: model, cluster, training, layout and schedule, with a note on everything that was assumed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from clustersim.hardware.cluster import Cluster
from clustersim.part import preset_names
from clustersim.pipeline.schedule import Schedule, get_schedule
from clustersim.pipeline.step import StepModel
from clustersim.validation.defaults import Source, source_of
from clustersim.validation.names import NODES, gpu_preset, precision_of_words, schedule_of_words
from clustersim.validation.rows import Row, packaged
from clustersim.validation.shapes import SkipRow, model_of
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.profile import Profile
from clustersim.workload.stack import Stack
from clustersim.workload.training import Training

NETWORK_GBPS = {"p100": 82, "v100": 400, "a100": 1600, "a800": 800, "h100": 3200, "h800": 3200, "h200": 3200, "b200": 3200,
                "b300": 6400, "gb200": 1600, "gb300": 3200, "mi250x": 800, "mi300x": 3200, "mi325x": 3200, "mi355x": 3200,
                "rtx": 100}  # fmt: skip
"""Gbit/s a node where a row names no fabric: the usual build of the GPU's generation (DGX datasheets)."""


@dataclass(frozen=True)
class Job:
    """A row as the step model takes it."""

    row: Row
    source: Source
    gpu: str
    model: TransformerModel
    cluster: Cluster
    training: Training
    layout: Layout
    schedule: Schedule
    stack: Stack | None
    assumed: dict[str, str] = field(default_factory=dict)

    def step(self, profile: Profile | None = None) -> StepModel:
        """The step model of the job."""
        return StepModel(model=self.model, cluster=self.cluster, training=self.training, layout=self.layout,
                         schedule=self.schedule, stack=self.stack, profile=profile)  # fmt: skip


class Reader:
    """Reads one row, writing down each default that it takes."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.source = source_of(row)
        self.assumed: dict[str, str] = {}

    def job(self) -> Job:
        """The row's job.

        Raises:
            SkipRow: hardware without a preset, or no model shape, layout or batch.
        """
        if self.source.skip:
            raise SkipRow(self.source.skip)
        gpu = self.gpu()
        model = model_of(self.row, self.source, self.assumed)
        layout = self.layout(gpu)
        training = self.training(model, layout, gpu)
        try:
            stack = None if self.source.stack is None else Stack.model_validate(self.source.stack)
            return Job(self.row, self.source, gpu, model, self.cluster(gpu), Training.model_validate(training),
                       Layout.model_validate(layout), self.schedule(layout), stack, self.assumed)  # fmt: skip
        except ValidationError as error:
            raise SkipRow(f"does not make a job: {error.errors()[0]['msg']}") from error

    def default(self, key: str, fallback: Any) -> Any:
        """The source's default of a blank cell, written down."""
        value = self.source.value(key, fallback)
        why = self.source.reason(key) if key in self.source.values else "default"
        self.assumed[key] = f"{value} ({why})"
        return value

    def gpu(self) -> str:
        """Preset of the row's GPU."""
        words = self.row.text("gpu") or ""
        chosen = self.source.value("gpu")
        named = gpu_preset(words) if words else None
        plain = re.fullmatch(r"(nvidia )?(a100|h100|hopper|ampere)( \(.*\))?", words.lower()) is not None
        if chosen and (named is None or plain):
            self.assumed["gpu"] = f"{chosen} ({self.source.reason('gpu')})"
            return str(chosen)
        if named is None:
            raise SkipRow(f"no preset for the hardware '{words or 'not named'}'")
        return named

    def cluster(self, gpu: str) -> Cluster:
        """The row's cluster."""
        node = NODES.get(gpu, "rtx-4090-8")
        each = self.row.whole("gpus_per_node") or (4 if gpu.startswith("gb") else 8 if gpu != "p100" else 1)
        rate = self.row.number("inter_node_net_gbps")
        if rate is None:
            known = next((value for key, value in NETWORK_GBPS.items() if gpu.startswith(key)), 400)
            rate = float(self.default("network_gbps", known))
        gpus = self.row.whole("n_gpus") or 1
        nodes = max(1, math.ceil(gpus / each))
        intra = {"domain_gpus": 72} if gpu.startswith("gb") else {}
        shape = {"preset": node, "gpu": gpu, "gpus": each, "nics": each, "nic_bandwidth": rate * 1e9 / 8 / each}
        if intra:
            shape["intra_node"] = intra
        return Cluster.model_validate(
            {"nodes": nodes, "node": shape, "network": self.network(gpu), "storage": "tectonic"}
        )

    def network(self, gpu: str) -> str:
        """Preset of the network between nodes."""
        named = self.source.value("network")
        if named is None:
            words = self.row.source.lower()
            named = "roce" if "roce" in words else "nvl72" if gpu.startswith("gb") else "infiniband"
        return str(named) if named in preset_names("networks") else "infiniband"

    def layout(self, gpu: str) -> dict[str, Any]:
        """Sizes of the parallel groups."""
        row = self.row
        gpus = row.whole("n_gpus")
        if not gpus:
            raise SkipRow("the number of GPUs is blank")
        if row.whole("pp") is None and self.source.value("layout_of"):
            row = self.row = self.with_layout(**self.source.value("layout_of"))
        tp = row.whole("tp") or self.source.value("tp")
        pp = row.whole("pp")
        if tp is None or pp is None:
            raise SkipRow("no layout: tp or pp is blank")
        cp, ep = row.whole("cp") or 1, row.whole("ep") or 1
        dp = row.whole("dp") or gpus // (tp * pp * cp)
        if tp * pp * cp * dp != gpus:
            dp = gpus // (tp * pp * cp)
            self.assumed["dp"] = f"{dp} (GPUs ÷ (tp · pp · cp); the row's own figure counts other groups)"
        if dp < 1:
            raise SkipRow(f"tp {tp} x pp {pp} x cp {cp} is more than the {gpus} GPUs")
        layout: dict[str, Any] = {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "ep": ep, "chunks": self.chunks(pp),
                                  "zero": self.zero(), "sequence_parallel": self.sequence_parallel(tp),
                                  "overlap": self.overlap()}  # fmt: skip
        stages = self.source.value("stage_layouts", {}).get(pp * layout["chunks"])
        if stages and self.row.text("model_name") and "deepseek" in str(self.row.text("model_name")).lower():
            layout["stage_layout"] = stages
            self.assumed["stage_layout"] = f"{stages} ({self.source.reason('stage_layouts')})"
        if pp > 1 and self.source.value("stage_layout"):
            layout["stage_layout"] = self.default("stage_layout", None)
        layout["shard"] = self.shard(dp * cp)
        etp = re.search(r"ETP ?= ?(\d+)|expert tensor parallel (\d+)", row.text("note") or "")
        if etp and ep > 1:
            layout["expert_tp"] = int(etp.group(1) or etp.group(2))
        elif ep > 1:
            folded = "folding" in (row.text("system") or "") or self.source.value("expert_tp") == 1
            layout["expert_tp"] = 1 if folded else tp
        return layout

    def with_layout(self, table: str, columns: list[str]) -> Row:
        """The row with the layout of the first row of a table that agrees with it in ``columns`` and prints one."""
        keys = ("tp", "pp", "cp", "ep", "vp", "zero_stage", "note")
        for other in packaged(table):
            if other.whole("pp") and all(other.text(column) == self.row.text(column) for column in columns):
                self.assumed["layout"] = f"that of {other.row_id} ({self.source.reason('layout_of')})"
                return Row(
                    {**self.row.cells, **{key: other.cells.get(key, "") for key in keys}}, self.row.file, self.row.line
                )
        return self.row

    def shard(self, replicas: int) -> dict[str, Any]:
        """Groups that share state where the note names them: shards inside a node, or of a given size."""
        note = self.row.text("note") or ""
        size = re.search(r"zero1=(\d+)|sharded within (\d+) GPUs", note)
        shard: dict[str, Any] = {"broadcast": True} if self.source.value("broadcast") else {}
        if size:
            shard["optimizer"] = min(replicas, int(size.group(1) or size.group(2)))
        if re.search(r"\bHSDP\b", note):
            each = min(replicas, self.row.whole("gpus_per_node") or 8)
            shard.update(parameters=each, gradients=each, optimizer=each)
        return shard

    def chunks(self, pp: int) -> int:
        """Chunks a rank."""
        given = self.row.whole("vp")
        if given:
            return given
        return int(self.default("chunks", 1)) if pp > 1 and not self.row_names_plain_schedule() else 1

    def row_names_plain_schedule(self) -> bool:
        """Whether the row says that its schedule has one chunk a rank."""
        return (self.row.text("schedule") or "").lower() in ("1f1b", "gpipe")

    def zero(self) -> int:
        """ZeRO stage."""
        text = self.row.text("zero_stage")
        if text is None:
            return int(self.default("zero", 1))
        return 3 if text.upper() == "FSDP" else int(float(text))

    def sequence_parallel(self, tp: int) -> bool:
        """Sequence parallelism, on with tensor parallelism only."""
        text = (self.row.text("sequence_parallel") or "").lower()
        if tp == 1:
            return False
        if text:
            return text in ("yes", "true", "1", "on")
        return bool(self.default("sequence_parallel", True))

    def overlap(self) -> dict[str, bool]:
        """Which traffic runs beside computation."""
        note = f"{self.row.text('note') or ''} {self.row.text('system') or ''}".lower()
        asynchronous = "async tp" in note or "tp/dp/pp overlap on" in note
        return {"tp": asynchronous or bool(self.source.value("overlap_tp", False)),
                "pp": bool(self.source.value("overlap_pp", False)) or "tp/dp/pp overlap on" in note, "dp": True}  # fmt: skip

    def exchanges_between_nodes(self, layout: dict[str, Any]) -> bool:
        """Whether experts lie beyond a fast domain, in a source whose recipes then hide their exchange."""
        domain = 72 if self.gpu().startswith("gb") else self.row.whole("gpus_per_node") or 8
        wide = layout["ep"] * layout.get("expert_tp", 1) > domain
        return bool(self.source.value("exchange_overlap")) and wide

    def schedule(self, layout: dict[str, Any]) -> Schedule:
        """The pipeline schedule; blank is 1F1B, interleaved where there are chunks."""
        text = self.row.text("schedule")
        named = schedule_of_words(text) if text else None
        if layout["pp"] == 1:
            return get_schedule("1f1b")
        if named is None and layout["chunks"] > 1 and self.exchanges_between_nodes(layout):
            named = "interleaved-1f1b-ep"
            self.assumed["schedule"] = f"{named} ({self.source.reason('exchange_overlap')})"
        if named is None:
            named = "interleaved-1f1b" if layout["chunks"] > 1 else "1f1b"
            self.assumed["schedule"] = f"{named} (blank: plain or interleaved 1F1B by the number of chunks)"
        elif named == "interleaved-1f1b" and layout["chunks"] == 1:
            named = "1f1b"
        return Schedule.build(named)

    def training(self, model: TransformerModel, layout: dict[str, Any], gpu: str) -> dict[str, Any]:
        """Batch, sequence, precision and recomputation."""
        row = self.row
        seq = row.whole("seq_len") or self.default("seq_len", None)
        if seq is None:
            raise SkipRow("the sequence length is blank")
        micro = row.whole("micro_batch") or self.micro_batch(layout)
        batch = self.batch(layout["dp"], micro)
        training: dict[str, Any] = {"seq_len": seq, "global_batch": batch, "micro_batch": micro, "steps": 1,
                                    "precision": self.precision(gpu), "recompute": self.recompute(model),
                                    "mfu": self.source.value("flop", "causal-half"),
                                    "grad_dtype": self.source.value("grad_dtype", "fp32")}  # fmt: skip
        if training["precision"] in self.source.value("narrow_weights", ()):
            training["narrow_weights"] = True
            self.assumed["narrow_weights"] = f"yes ({self.source.reason('narrow_weights')})"
        if self.zero_is_fsdp() and (layers := self.source.value("fsdp_offload_layers", {}).get(training["precision"])):
            training["offload"] = {"activations": layers / model.layers}
            self.assumed["offload"] = f"activations of {layers} layers ({self.source.reason('fsdp_offload_layers')})"
        if "lora" in (row.text("note") or "").lower() and "SFT Performance" not in (row.text("note") or ""):
            training["lora"] = {"rank": 16}
            self.assumed["lora"] = "rank 16 (not printed)"
        return training

    def micro_batch(self, layout: dict[str, Any]) -> int:
        """Microbatch where the cell is blank."""
        if self.source.value("micro_batch") == "batch/pp" and layout["pp"] > 1:
            each = max(1, (self.row.whole("global_batch") or 1) // (layout["dp"] * layout["pp"]))
            self.assumed["micro_batch"] = f"{each} ({self.source.reason('micro_batch')})"
            return int(each)
        value = self.default("micro_batch", 1)
        return value if isinstance(value, int) else 1

    def batch(self, dp: int, micro: int) -> int:
        """Sequences a step, a multiple of replicas × microbatch."""
        batch = self.row.whole("global_batch")
        accumulation = self.row.whole("grad_accum") or self.row.whole("n_micro_batches")
        each = dp * micro
        if batch is None:
            if accumulation is None:
                raise SkipRow("no batch: the global batch and the number of microbatches are blank")
            return each * accumulation
        if batch % each:
            rounded = max(1, round(batch / each)) * each
            self.assumed["global_batch"] = f"{rounded} (the nearest to {batch} that replicas x microbatch divide)"
            return rounded
        return batch

    def precision(self, gpu: str) -> str:
        """Training precision."""
        text = self.row.text("precision")
        found = precision_of_words(text) if text else None
        if found is not None:
            return found
        return str(self.default("precision", "fp16" if gpu.startswith(("v100", "p100")) else "bf16"))

    def recompute(self, model: TransformerModel) -> Any:
        """Recomputation; FSDP rows that recompute only some layers say how much by HFU ÷ MFU."""
        text = self.row.text("activation_recompute")
        if text is None:
            return self.default("recompute", "none")
        if text != "selective":
            return text
        if self.source.value("selective") == "torchtitan":
            self.assumed["recompute"] = f"alternate-products ({self.source.reason('selective')})"
            return {"kind": "selective", "ops": ["alternate-products"]}
        hfu, mfu = self.row.number("hfu_pct"), self.row.number("mfu_pct")
        if self.zero_is_fsdp() and hfu and mfu:
            layers = min(model.layers, round(model.layers * 3 * (hfu / mfu - 1)))
            self.assumed["recompute"] = f"{layers} layers in full (from the source's HFU ÷ MFU)"
            return {"kind": "full", "layers": layers} if layers else "none"
        return "selective"

    def zero_is_fsdp(self) -> bool:
        """Whether parameters are sharded."""
        return self.row.text("zero_stage") in ("3", "FSDP")


def job_of(row: Row) -> Job:
    """The job that a row describes.

    Raises:
        SkipRow: it cannot be run; the text says why.
    """
    return Reader(row).job()
