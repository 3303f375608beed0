"""Published measurements and closed forms of checkpointing against clustersim: one row a figure.

``cases()`` gives all rows; ``failed(rows)`` those beyond their bound. Nothing is fitted to a row but where its ``note``
says that the row is where a component's constant comes from.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import resources

from clustersim.checkpoint import closed_forms as forms
from clustersim.checkpoint.engine import StepShape
from clustersim.checkpoint.placement import group_bound, group_probability, ring_probability
from clustersim.validation import checkpoint_jobs as jobs

Row = dict[str, str]


@dataclass(frozen=True)
class Case:
    """One published figure and ours.

    Attributes:
        suite: where it belongs.
        case: what was measured.
        published, ours: the figures.
        bound: largest allowed factor between the two, less 1; None: informative (its order or its median counts).
        source: where the published figure stands.
        note: what ours rests on.
    """

    suite: str
    case: str
    published: float
    ours: float
    bound: float | None
    source: str
    note: str = ""

    @property
    def deviation(self) -> float:
        """Ours ÷ published − 1."""
        return self.ours / self.published - 1 if self.published else math.inf

    @property
    def holds(self) -> bool:
        """Within its bound."""
        if self.bound is None:
            return True
        ratio = self.ours / self.published
        return max(ratio, 1 / ratio) <= (1 + self.bound) * (1 + 1e-12)


def table(name: str) -> list[Row]:
    """Rows of a published table that comes with the package."""
    packed = resources.files("clustersim.validation").joinpath("data", f"{name}.csv.gz").read_bytes()
    return list(csv.DictReader(io.StringIO(gzip.decompress(packed).decode("utf-8"))))


# -- closed forms -------------------------------------------------------------------------------------------------------


def closed_forms() -> Iterator[Case]:
    """Worked values of the formulas that runs are tested against."""
    sheet = "worked values of closed forms, checked by simulation of their authors' own"
    yield Case("closed forms", "two levels, C 0.02/2, MTBF 200/2000", 0.925854,
               forms.two_level_goodput(2.8284, 32, (0.02, 2.0), (1 / 200, 1 / 2000), (2, 15)), 1e-6, sheet)  # fmt: skip
    yield Case("closed forms", "two levels, C 0.1/5, MTBF 120/600", 0.791183,
               forms.two_level_goodput(4.899, 16, (0.1, 5.0), (1 / 120, 1 / 600), (3, 20)), 2e-6, sheet)  # fmt: skip
    for tau, stall, persist, value in [(10, 0.78, 67, 0.916778), (30, 0.78, 436, 0.840291), (60, 0.59, 51.06, 0.79992)]:
        ours = forms.async_goodput(185.6, tau, stall / 60, persist / 60, 10)
        yield Case("closed forms", f"asynchronous, τ {tau} min, persist {persist} s", value, ours, 3e-6, sheet)
    yield from _placements()
    yield from _meta()


def _placements() -> Iterator[Case]:
    sheet = "GEMINI (SOSP 2023) 93.3 % and 80.0 % at 16 machines; the rest worked out, brute force agrees"
    kinds: list[tuple[str, Callable[[int, int, int], float], tuple[tuple[int, int, int, float], ...]]] = [
        ("group", group_probability, ((16, 2, 2, 0.93333333), (16, 2, 3, 0.8), (16, 2, 4, 0.61538462),
                                      (16, 4, 4, 0.9978022), (128, 2, 8, 0.79254125), (1024, 2, 8, 0.97283018),
                                      (2048, 2, 16, 0.94266797))),
        ("ring", ring_probability, ((16, 2, 2, 0.86666667), (16, 2, 3, 0.62857143), (16, 2, 4, 0.36263736),
                                    (16, 4, 4, 0.99120879), (128, 2, 3, 0.95313086), (1024, 2, 32, 0.36781761),
                                    (1024, 3, 8, 0.99968021), (2048, 2, 16, 0.88859707))),
        ("bound", group_bound, ((16, 2, 4, 0.6), (128, 2, 8, 0.77952756), (1024, 2, 32, 0.51515152),
                                (1024, 3, 8, 0.99989298))),
    ]  # fmt: skip
    for name, formula, rows in kinds:
        for nodes, copies, lost, value in rows:
            what = f"{name} placement, {nodes} nodes, {copies} copies, {lost} lost"
            yield Case("peer copies", what, value, formula(nodes, copies, lost), 2e-7, sheet)


def _meta() -> Iterator[Case]:
    source = "Kokolis et al. 2024, RSC-1 rate of 6.5e-3 a node and day"
    rows = [(2000, 0.0065, 60.0, 0.0, 5.0, 0.684, 0.7202), (2000, 0.0065, 5.0, 0.0, 5.0, 0.9323, 0.9345),
            (1500, 0.0065, 7.017, 1 / 6, 5.0, 0.9205, 0.9215), (1500, 0.0065, 38.431, 5.0, 5.0, 0.7398, 0.7358),
            (12500, 0.00234, 2.0, 0.0, 2.0, 0.9391, 0.9408)]  # fmt: skip
    for nodes, rate, tau, write, restart, estimate, exact in rows:
        each = rate / 1440
        what = f"ETTR of {nodes} nodes, saves every {tau:g} min"
        yield Case("Meta", f"{what}: estimator", estimate, forms.meta_ettr(nodes, each, tau, write, restart), 1e-4, source)
        ours = forms.sync_goodput(1 / (nodes * each), tau, write, restart)
        yield Case("Meta", f"{what}: exact renewal", exact, ours, 1e-4, source)


# -- DataStates-LLM -----------------------------------------------------------------------------------------------------


def datastates() -> Iterator[Case]:
    """End-to-end runtime of 50 iterations, and blocking throughput, of four methods."""
    from clustersim.run.simulate import run_replica

    models = {row["model_label_billion"]: row for row in table("datastates-models")}
    for row in table("datastates-interval"):
        model, method, interval = models[row["model_label_billion"]], row["method"], int(row["ckpt_interval_iters"])
        job = jobs.polaris(method, int(row["num_gpus"]), float(model["ckpt_total_gb"]) * 1e9, _times(model), interval)
        what = f"{model['model_label_billion']}B, every {interval} iterations, {method}"
        wall = run_replica(job, 0, 0, events=False).wall_s
        yield Case("DataStates runtime", what, float(row["e2e_runtime_s_label"]), wall, None, row["source"])
    yield from _throughputs(models)


def _throughputs(models: dict[str, Row]) -> Iterator[Case]:
    """Bytes ÷ what the save stalls."""
    rows = [(row["model_label_billion"], int(row["num_gpus"]), row["method"], row["ckpt_throughput_GB_per_s_vector"],
             row["source"]) for row in table("datastates-model")]  # fmt: skip
    rows += [(row["model_label_billion"], int(row["num_gpus"]), row["method"], row["ckpt_throughput_GB_per_s"],
              row["source"]) for row in table("datastates-dp")]  # fmt: skip
    for label, gpus, method, published, source in rows:
        model = models[label]
        size = float(model["ckpt_total_gb"]) * 1e9
        save = jobs.polaris(method, gpus, size, _times(model), 1).saves[0]
        what = f"{label}B on {gpus} GPUs, {method}"
        yield Case("DataStates throughput", what, float(published), size / save.stall_s / 1e9, None, source)


def _times(model: Row) -> tuple[float, float, float]:
    return float(model["forward_s"]), float(model["backward_s"]), float(model["update_s"])


# -- GoCkpt -------------------------------------------------------------------------------------------------------------


def gockpt_best(method: str, intervals: Iterable[int] = range(1, 1200)) -> tuple[int, float]:
    """The best interval of a method in steps, and its goodput (closed form of its stall and persist time)."""
    save = jobs.v100s(method, 100).saves[0]
    step, least = jobs.GOCKPT_STEP_S, save.busy_s

    def goodput(steps: int) -> float:
        return forms.async_goodput(600.0, steps * step, save.stall_s, save.busy_s, 0.0)

    best = max((steps for steps in intervals if steps * step >= least), key=goodput)
    return best, goodput(best)


def gockpt() -> Iterator[Case]:
    """Tokens/s under a failure every 600 s, each method at its best interval; and that of GoCkpt-O."""
    rows = [row for row in table("gockpt") if row["quantity"] == "same" or "600" in row["quantity"]]
    published = {row["method"]: float(row["value"]) for row in rows} | {"DeepSpeed": 411.9}
    source = "arXiv 2511.07035, third-party notes"
    note = "order counts; 256 tokens a step assumed"
    for method, value in published.items():
        _, goodput = gockpt_best(method)
        yield Case("GoCkpt", f"tokens/s, {method}", value, goodput * 830.0, None, source, note)
    best, _ = gockpt_best("GoCkpt-O")
    yield Case("GoCkpt", "best interval of GoCkpt-O, steps", 32, best, 0.15, source, note)


# -- single systems -----------------------------------------------------------------------------------------------------


def transom() -> Iterator[Case]:
    """Save and load of 175B through the cache, and what reading the same weights by all ranks costs."""
    source = "transom-checkpoint-engine docs/benchmark.md"
    from clustersim.checkpoint.tiers import Tier

    job = jobs.transom(175e9, 128, {"tp": 8, "pp": 8, "dp": 2}, storage_write=175e9 * 14 / 270)
    small = jobs.transom(7.1e9, 8, {"tp": 4, "pp": 2, "dp": 1})
    yield Case("TRANSOM", "save 7B1 on 8 GPUs, s", 6.9, small.saves[0].stall_s, 0.15, source, "where the copy rate is from")
    yield Case("TRANSOM", "save 175B on 128 GPUs, s", 10.6, job.saves[0].stall_s, 0.15, source)
    yield Case("TRANSOM", "load 175B on 128 GPUs, s", 8.9, job.loads[Tier.HOST].seconds, 0.15, source)
    slow = max(after for after, tier in job.saves[0].durable if tier == Tier.SHARED) - job.saves[0].stall_s
    yield Case("TRANSOM", "175B to file storage, s", 270, slow, 0.15, source, "where the storage's bandwidth is from")
    yield Case("TRANSOM", "file storage ÷ cache", 270 / 10.6, slow / job.saves[0].stall_s, 0.15, source)
    wide = jobs.transom(7.1e9, 32, {"tp": 1, "pp": 1, "dp": 32}).state
    deep = jobs.transom(7.1e9, 32, {"tp": 8, "pp": 4, "dp": 1}).state
    amplified = wide.read_by_all / deep.read_by_all
    yield Case("TRANSOM", "load of DP32 ÷ load of TP8 PP4, 7B1 on 32 GPUs", 16.1 / 2.9, amplified, 0.15, source)


HDFS_STREAM = 4e9 * 14 / 128 / 23.74
"""One rank's stream to HDFS, bytes/s: ByteCheckpoint's row of 4B on 128 A100 (56 GB in 23.74 s), used for the others."""
DCP_STREAM = 4e9 * 14 / 128 / 236.34
"""The same of PyTorch DCP and its kin, which upload a rank's file by one thread: the DCP row of the same job."""
PLAN_S = 0.38
"""Planning of a save with a cached plan: the stall of the same row, whose copy takes 9 ms."""


def stall_and_persist() -> Iterator[Case]:
    """ByteCheckpoint and DCP: stall and persist time from bytes, copy rate and one stream's rate."""
    source = "ByteCheckpoint (arXiv 2407.20143) and PyTorch's async checkpoint blog"
    rows = [("4B on 128 A100, ByteCheckpoint", 4e9, 128, 0.38, 23.74, HDFS_STREAM, "where both constants are from"),
            ("70B on 4,800 H800, ByteCheckpoint", 70e9, 4800, 0.36, 8.59, HDFS_STREAM, "factor 2"),
            ("405B on 8,960 GPUs, ByteCheckpoint", 405e9, 8960, 0.59, 51.06, HDFS_STREAM, "factor 2"),
            ("4B on 128 A100, DCP", 4e9, 128, None, 236.34, DCP_STREAM, "where the stream's rate is from"),
            ("70B on 4,800 H800, Megatron MCP", 70e9, 4800, None, 76.21, DCP_STREAM, "factor 2"),
            ("70B on 1,856 H200, DCP async, before", 70e9, 1856, 0.78, 436.0, DCP_STREAM, "factor 2")]  # fmt: skip
    for what, parameters, gpus, stall, persist, stream, note in rows:
        engine = {"kind": "async", "planning": PLAN_S, "writer_bandwidth": stream, "interval": {"steps": 100}}
        job = jobs.prepared(engine, gpus=gpus, per_node=8, bytes_total=parameters * 14, steps=1000, step=jobs.KnownStep(10.0),
                            storage={"kind": "shared-filesystem", "write_bandwidth": 1e15, "read_bandwidth": 1e15},
                            node={"pinned_bandwidth_per_gpu": 46.8e9})  # fmt: skip
        if stall is not None:
            yield Case("stall and persist", f"{what}: stall, s", stall, job.saves[0].stall_s, 1.0, source, note)
        yield Case("stall and persist", f"{what}: persist, s", persist, job.saves[0].busy_s, 1.0, source, note)
    planned = 70e9 * 14 / 1856 / HDFS_STREAM
    yield Case("stall and persist", "70B on 1,856 H200, DCP async with a cached plan: persist, s", 67.0, planned, None,
               source, "informative: a writer and a storage of its own")  # fmt: skip
    for what, size, seconds in [("1.5B, 24 GB to a NAS of 100 MB/s", 24e9, 242.0), ("1.5B, 18 GB", 18e9, 151.0)]:
        job = jobs.prepared({"kind": "sync", "interval": {"steps": 50}}, gpus=16, per_node=8, bytes_total=size, steps=100,
                            storage={"kind": "shared-filesystem", "write_bandwidth": 0.1e9, "read_bandwidth": 0.1e9},
                            step=jobs.KnownStep(1.0))  # fmt: skip
        yield Case("stall and persist", f"{what}: stall, s", seconds, job.saves[0].stall_s, 0.2,
                   "DLRover megatron_flash_checkpoint.md")  # fmt: skip


def bloom() -> Iterator[Case]:
    """BLOOM: 2.3 TB in 40 s every 3 h, a failure a week."""
    source = "ml-engineering, training/fault-tolerance (2.3 TB, 40 s, every 3 h; about a failure a week)"
    gpfs = {"kind": "shared-filesystem", "write_bandwidth": 57.5e9, "read_bandwidth": 57.5e9, "latency": 0.0}
    job = jobs.prepared({"kind": "sync", "interval": "young"}, gpus=384, per_node=8, bytes_total=2.3e12, steps=100,
                        storage=gpfs,
                        failures=[{"component": "job", "severity": "process", "mtbf": 168 * 3600.0, "detection": 0.0}],
                        step=jobs.KnownStep(100.0))  # fmt: skip
    stall = job.saves[0].stall_s
    yield Case("BLOOM", "a save, s", 40.0, stall, 0.01, source, "where the storage's bandwidth is from")
    yield Case("BLOOM", "Young's interval, h", 1.9322, (job.every.seconds or 0.0) / 3600, 1e-4, source)
    for interval, waste in [(10800.0, 0.012632), (6956.0, 0.011501)]:
        ours = 1 - forms.sync_goodput(168 * 3600.0, interval, stall, 0.0)
        yield Case("BLOOM", f"waste, saves every {interval / 3600:.2f} h", waste, ours, 0.02, source)


def byterobust() -> Iterator[Case]:
    """Relative MFU with a save at every step, from runs whose step follows from the Megatron row of the same table."""
    from clustersim.run.simulate import run_replica

    rows = [("70B on 2,048 L20", 4.4833, (("gemini", 1.84, 0.7005), ("byterobust", 0.04, 0.9923))),
            ("70B on 4,096 L20", 4.5861, (("gemini", 1.69, 0.7236), ("byterobust", 0.03, 0.9912))),
            ("256B on 8,192 L20", 9.8502, (("gemini", 0.22, 0.959),)),
            ("256B on 16,384 L20", 9.7123, (("gemini", 0.18, 0.9692), ("byterobust", 0.02, 0.9911)))]  # fmt: skip
    for what, step, engines in rows:
        for kind, stall, published in engines:
            fast = {"kind": "shared-filesystem", "write_bandwidth": 1e15, "read_bandwidth": 1e15}
            job = jobs.prepared({"kind": kind, "stall": stall}, gpus=16, per_node=8, bytes_total=1e9, storage=fast, steps=2000,
                                step=jobs.KnownStep(step, shape=StepShape(step)))  # fmt: skip
            ours = run_replica(job, 0, 0, events=False).ettr
            yield Case("ByteRobust", f"{what}, {kind}: relative MFU", published, ours, 0.05, "arXiv 2509.16293, table 8",
                       "stall and step as published")  # fmt: skip


def cases() -> list[Case]:
    """All rows."""
    found = (closed_forms, datastates, gockpt, transom, stall_and_persist, bloom, byterobust)
    return [case for rows in found for case in rows()]


def failed(rows: Iterable[Case]) -> list[Case]:
    """Rows beyond their bound."""
    return [case for case in rows if not case.holds]


def medians(rows: Iterable[Case]) -> dict[str, float]:
    """Median absolute deviation of each suite."""
    by_suite: dict[str, list[float]] = {}
    for case in rows:
        by_suite.setdefault(case.suite, []).append(abs(case.deviation))
    return {suite: statistics.median(values) for suite, values in by_suite.items()}
