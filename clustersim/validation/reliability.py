"""Published cases of failures and recovery against clustersim: one row a figure, each with its bound.

``cases()`` gives all rows, those of checkpointing included; ``failed(rows)`` those beyond their bound. A row whose figure went
into its own scenario is *told* (no bound): it shows that the machinery reproduces it, and proves nothing. The scenarios lie in
``scenarios/papers`` and ``scenarios/cases``.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clustersim
from clustersim.recovery.stages import Stage
from clustersim.recovery.standby import standbys
from clustersim.run.prepared import Prepared
from clustersim.run.result import RunResult
from clustersim.run.simulate import run_replica
from clustersim.scenario.load import load


@dataclass(frozen=True)
class Case:
    """One published figure and ours.

    Attributes:
        suite: which of the cases.
        case: what was measured.
        published: the figure, or the nearest end of a published range.
        ours: what clustersim gives.
        low, high: within these ours must lie; both None: told only.
        source: where the published figure stands.
        note: what ours rests on.
    """

    suite: str
    case: str
    published: float
    ours: float
    low: float | None
    high: float | None
    source: str
    note: str = ""

    @property
    def deviation(self) -> float | None:
        """Ours ÷ published − 1."""
        return self.ours / self.published - 1 if self.published else None

    @property
    def scored(self) -> bool:
        """Whether it has a bound."""
        return self.low is not None or self.high is not None

    @property
    def holds(self) -> bool:
        """Within its bound."""
        above = self.low is None or self.ours >= self.low * (1 - 1e-12)
        return above and (self.high is None or self.ours <= self.high * (1 + 1e-12))


def within(suite: str, case: str, published: float, ours: float, bound: float, source: str, note: str = "") -> Case:
    """A row whose deviation may be ``bound`` either way."""
    return Case(suite, case, published, ours, published * (1 - bound), published * (1 + bound), source, note)


def told(suite: str, case: str, published: float, ours: float, source: str, note: str = "") -> Case:
    """A row without a bound."""
    return Case(suite, case, published, ours, None, None, source, note)


def folder() -> Path | None:
    """Where the scenarios lie: beside the package (a checkout), or in it; None: they are not installed."""
    package = Path(clustersim.__file__).parent
    found = [place for place in (package.parent / "scenarios", package / "scenarios") if (place / "papers").is_dir()]
    return found[0] if found else None


@functools.cache
def prepared(file: str, step_s: float | None, *overrides: str) -> Prepared:
    """A scenario of the folder, with a step of a given time where steps do not matter."""
    place = folder()
    if place is None:
        raise FileNotFoundError("the scenarios are not installed; run from a checkout")
    return Prepared(load(str(place / file), overrides), step_s)


def runs(file: str, *overrides: str, step_s: float | None = 6.0, replicas: int | None = None) -> list[RunResult]:
    """Its replicas, the first ones of its own seed."""
    ready = prepared(file, step_s, *overrides)
    simulation = ready.scenario.simulation
    return [run_replica(ready, simulation.seed, index, events=False) for index in range(replicas or simulation.replicas)]


def mean(results: Iterable[RunResult], value: Callable[[RunResult], float]) -> float:
    """Mean over replicas."""
    return statistics.fmean(value(result) for result in results)


def ettr(results: Iterable[RunResult]) -> float:
    """Mean effective training time ratio."""
    return mean(results, lambda result: result.ettr)


# -- cases 1 to 8 -------------------------------------------------------------------------------------------------------


def llama3() -> Iterator[Case]:
    """Case 1."""
    name, source = "1 Llama 3 405B", "arXiv 2407.21783, table 5"
    results = runs("llama3-405b-16k.yaml", replicas=8)
    hits = mean(results, lambda result: result.interruptions)
    yield Case(name, "unexpected interruptions in 54 d on 16,384 H100", 419, hits, 399, 439, source,
               "the rates are these counts ÷ 54 d; the bound is Poisson's")  # fmt: skip
    yield Case(name, "effective training time", 0.90, ettr(results), 0.90, 1.0, "there: over 90 %",
               "restart of 6.5 min, asynchronous saves every 10 min: assumed")  # fmt: skip
    lost = mean(results, lambda result: (1 - result.ettr) * result.wall_s / (result.interruptions + result.interruptions_planned))
    yield Case(name, "minutes lost an interruption", 16.7, lost / 60, None, 16.7, "what 90 % over 466 interruptions allows")


def rsc() -> Iterator[Case]:
    """Case 2."""
    name, source = "2 Meta RSC", "arXiv 2410.21680, estimate of its authors"
    file = "papers/rsc-2000-nodes.yaml"
    yield within(name, "ETTR, 2,000 nodes, saves every 60 min", 0.7, ettr(runs(file)), 0.05, source,
                 "exact renewal: 0.7202; their estimate is linear")  # fmt: skip
    yield within(name, "ETTR, 2,000 nodes, every 5 min", 0.93, ettr(runs(file, "checkpoint.interval=5 min")), 0.02, source)
    fewer = ("cluster.nodes=1500", "training.global_batch=1500", "parallelism.pp=4", "checkpoint.stall=10 s",
             "checkpoint.interval=auto")  # fmt: skip
    yield within(name, "ETTR, 1,500 nodes, saves of 10 s", 0.90, ettr(runs(file, *fewer)), 0.05, source)
    mid = ("cluster.nodes=384", "training.global_batch=384")
    yield Case(name, "ETTR of 3,072 GPUs, saves every 60 min", 0.9, ettr(runs(file, *mid)), 0.85, 0.95,
               "there: about 0.9 for 2,048 to 4,096 GPUs")  # fmt: skip


def byterobust() -> Iterator[Case]:
    """Cases 3 and 4."""
    name, source = "3 ByteRobust", "arXiv 2509.16293"
    results = runs("papers/byterobust-dense.yaml")
    yield within(name, "incidents in 90 d on 9,600 GPUs", 175, mean(results, lambda result: result.interruptions), 0.10, source,
                 "the rate is this count ÷ 90 d; 10 replicas of Poisson")  # fmt: skip
    yield within(name, "ETTR of three months", 0.97, ettr(results), 0.02, source, "localisation, load, hang: assumed")
    for nodes, count in ((128, 2), (256, 2), (512, 3), (1024, 4)):
        yield within(name, f"standby machines for {nodes}", count, standbys(nodes, 1.2e-3), 0.0, f"{source}: P99 of a binomial",
                     "one probability, 1.2e-3 a window, for all four")  # fmt: skip
    requeue = Stage.model_validate({"time": 454 - 91 * 11, "per_doubling": 91}) if False else None
    del requeue
    yield from _reschedule(name, source)
    yield from _stalls(source)


def _reschedule(name: str, source: str) -> Iterator[Case]:
    slope = 545 - 454
    for gpus, seconds in ((8192, 635.0), (16384, 768.0)):
        ours = 454 + slope * math.log2(gpus / 2048)
        yield within(name, f"requeue at {gpus:,} GPUs, s", seconds, ours, 0.10, f"{source}, table 7",
                     "the same added a doubling as from 2,048 to 4,096")  # fmt: skip
    from clustersim.recovery.in_place import InJob

    stage = InJob().rendezvous
    for gpus, seconds in ((4096, 51.0), (8192, 54.0), (16384, 65.0)):
        yield within(name, f"in-place update at {gpus:,} GPUs, s", seconds, stage.extra_s(gpus), 0.10, f"{source}, table 7",
                     "from 46 s at 2,048 GPUs, in proportion to log₂")  # fmt: skip


def _stalls(source: str) -> Iterator[Case]:
    """Stalls of a save every step → relative MFU; the step follows from the Megatron row of the same job."""
    rows = [("70B, 2,048 GPUs", 6.77, 0.3984, (("GEMINI", 1.84, 0.7005), ("ByteRobust", 0.04, 0.9923))),
            ("256B, 16,384 GPUs", 12.98, 0.4280, (("GEMINI", 0.18, 0.9692), ("ByteRobust", 0.02, 0.9911)))]  # fmt: skip
    for job, stall, relative, others in rows:
        step = stall * relative / (1 - relative)
        for system, seconds, published in others:
            made = ("failures=null", "checkpoint.interval={steps: 1}", f"checkpoint.stall={seconds} s", "training.duration=4 h")
            ours = ettr(runs("papers/byterobust-dense.yaml", *made, step_s=step, replicas=1))
            yield within("4 ByteRobust, saves each step", f"{system}, {job}: relative MFU", published, ours, 0.025,
                         f"{source}, table 8", f"step {step:.2f} s from the Megatron row")  # fmt: skip


def bloom() -> Iterator[Case]:
    """Case 5."""
    name, source = "5 BLOOM", "BigScience chronicle: a failure a week, 40 s every 3 h"
    results = runs("papers/bloom-176b.yaml", step_s=100.0)
    waste = mean(results, lambda r: (r.ledger_s["checkpoint_stall"] + r.lost_work_s) / r.wall_s)
    yield within(name, "waste by saves and lost work", 0.0126, waste, 0.12, source, "first-order arithmetic; the bound is ours' error")
    lost = mean(results, lambda r: r.lost_work_s / max(r.interruptions, 1)) / 3600
    yield Case(name, "hours lost a crash", 3.0, lost, None, 3.0, "chronicle: up to 3 h")
    every = prepared("papers/bloom-176b.yaml", 100.0, "checkpoint.interval=young").every.seconds or math.nan
    yield within(name, "Young's interval, h", 1.93, every / 3600, 0.01, "√(2 · 40 s · 168 h)")


def opt() -> Iterator[Case]:
    """Case 6."""
    name = "6 OPT-175B"
    results = runs("papers/opt-175b.yaml", step_s=60.0)
    days = mean(results, lambda r: r.wall_s) / 86400
    yield Case(name, "days for 33 d of work", 56, days, 56, 63, "metaseq chronicles", "times of people: assumed")
    for spares in (4, 12, 18):
        some = runs("papers/opt-175b.yaml", f"cluster.spare_nodes={spares}", step_s=60.0)
        wait = mean(some, lambda r: r.ledger_s["wait_for_nodes"]) / 3600
        yield told(name, f"hours of waiting for hosts, buffer {spares}", 0, wait, "buffer of 4 emptied by 5 losses in a day")


def dlrover() -> Iterator[Case]:
    """Case 7."""
    name, source = "7 DLRover GLM-65B", "DLRover blog on flash checkpoint"
    before = ettr(runs("papers/dlrover-glm-65b.yaml"))
    flash = ("checkpoint.stall=0.2 s", "checkpoint.interval={steps: 10}")
    after = ettr(runs("papers/dlrover-glm-65b.yaml", *flash))
    yield within(name, "goodput before, 120 s every 1.5 h", 0.90, before, 0.10, source, "failure rate and restart: assumed")
    yield within(name, "goodput after, 0.2 s every 10 steps", 0.95, after, 0.03, source)
    yield Case(name, "gain", 0.05, after - before, 0.03, 0.15, source, "same failures for both")


# -- cases 9 to 15 ------------------------------------------------------------------------------------------------------


def trainmover() -> Iterator[Case]:
    """Case 9."""
    name, source = "9 TrainMover", "arXiv 2412.12636"
    yield from _downtimes(name, source)
    for gpus, mttf_min, loss in ((65536, 27.0, 0.1647), (131072, 14.0, 0.3179)):
        yield within(name, f"d ÷ MTTF at {gpus:,} GPUs", loss, 4.45 / mttf_min, 0.002, source, "4.45 min ÷ MTTF")
        ratio = _exact(4.45 * 60, mttf_min * 60)
        yield told(name, f"1 − ETTR at {gpus:,} GPUs, d alone", loss, 1 - ratio, source,
                   "a run: d ÷ (MTTF + d) when failures spare the restart")  # fmt: skip
    results = runs("papers/trainmover-8k.yaml")
    hits = mean(results, lambda r: r.wall_s * r.ettr / r.interruptions) / 3600
    down = mean(results, lambda r: sum(r.ledger_s[c] for c in ("reschedule", "communicators", "load", "warm_up", "start"))
                / r.interruptions) / 60  # fmt: skip
    yield told(name, "minutes to come back, 8,192 GPUs", 6.47, down, f"{source}, table 1", "stages are inputs")
    yield told(name, "hours of training an interruption", 3.0, hits, source)
    moved = runs("papers/trainmover-8k.yaml", "recovery.strategy=trainmover", "recovery.stages={reschedule: 120 s}")
    yield told(name, "ETTR at 8,192 GPUs, restart → TrainMover", ettr(results), ettr(moved), source)


def _downtimes(name: str, source: str) -> Iterator[Case]:
    from clustersim.recovery.standby import TrainMover

    mover = TrainMover()
    assert mover.migration is not None
    switch = mover.migration.stages["switch"]
    for gpus, expected, unexpected in ((32, 11.5, 19.6), (128, 14.5, 20.2), (256, 15.5, 20.4), (1024, 16.6, 21.1)):
        base = mover.phase_two.time.mean_s()
        fitted = " (the constant's row)" if gpus == 1024 else ""
        yield within(name, f"expected event, {gpus} GPUs, s", expected, base + switch.extra_s(gpus), 0.20, f"{source}, figure 8",
                     f"phase two 7 s, switch 0.96 s a doubling{fitted}")  # fmt: skip
        ours = base + mover.switch.time.mean_s() + mover.switch.extra_s(gpus)
        ends = " (a constant's row)" if gpus in (32, 1024) else ""
        yield within(name, f"unexpected event, {gpus} GPUs, s", unexpected, ours, 0.20, f"{source}, figure 8",
                     f"switch 11.1 s + 0.3 s a doubling{ends}")  # fmt: skip


def _exact(down_s: float, mttf_s: float) -> float:
    """ETTR of a run that loses nothing but a fixed time a failure."""
    made = ("recovery={strategy: restart, lossless: true, stages: {start: %f s}}" % down_s, "checkpoint=none",
            f"failures=[{{name: f, component: job, severity: process, mtbf: {mttf_s} s, detection: 0 s}}]",
            "failures_during={recovery: false}", "training.duration=100 d")  # fmt: skip
    return ettr(runs("papers/trainmover-8k.yaml", *made, step_s=1.0, replicas=1))


def fftrainer() -> Iterator[Case]:
    """FFTrainer's and Gemini's recovery by size, and what a failure every 3 h costs."""
    name, source = "9 FFTrainer", "arXiv 2512.03644, a third party's summary"
    yield within(name, "Gemini's way, 128 GPUs, s", 994, 15 + 392 + 421 + 71 * 2.3, 0.02, source,
                 "stages at 16 GPUs; connections 2.3 times as long")  # fmt: skip
    from clustersim.recovery.standby import FFTrainer

    ff = FFTrainer()
    connect = ff.connect.time.mean_s() + ff.connect.extra_s(128)
    yield within(name, "FFTrainer, 128 GPUs, s", 29, (ff.heartbeat or 0) + ff.pod.time.mean_s() + connect, 0.05, source,
                 "state beside connections, which take 27 % longer than at 16")  # fmt: skip
    loss = 1 - ettr(runs("papers/fftrainer-13b.yaml"))
    yield Case(name, "share of time lost, a failure every 3 h", 0.0027, loss, 0.002, 0.0032, source, "the broken step included")


def megascale() -> Iterator[Case]:
    """Set-up of communicators by size."""
    name, source = "MegaScale", "arXiv 2402.15627, section 3.5"
    pairs = Stage.model_validate({"time": 0.0, "per_pair": 1047 / 2048**2})
    ordered = Stage.model_validate({"time": 0.0, "per_gpu": 5 / 2048})
    yield told(name, "TCPStore, a barrier a group, 2,048 GPUs, s", 1047, pairs.extra_s(2048), source, "GPUs² from this row")
    yield Case(name, "ordered, 12,288 GPUs, s", 30, ordered.extra_s(12288), None, 30, "there: below 30 s above 10,000",
               "in proportion to GPUs, from below 5 s at 2,048")  # fmt: skip
    several = pairs.extra_s(768)
    yield Case(name, "default path, several hundred to 1,000 GPUs, s", 150, several, 75, 300, "NCCL issue 1156: 2.5 min",
               "its size is not told: 768 taken")  # fmt: skip


def marin() -> Iterator[Case]:
    """Case 10."""
    name, source = "10 Marin 704 GB200", "marin issues 8506, 8934"
    results = runs("cases/nvlink-domain-fault.yaml", step_s=10.0)
    lost = mean(results, lambda r: r.lost_work_s / max(r.interruptions, 1)) / 60
    yield Case(name, "minutes of work lost a fault, hourly saves", 55, lost, 25, 60, source, "a fault before the first save: 54 to 55")
    back = mean(results, lambda r: sum(r.ledger_s[c] for c in ("reschedule", "start", "communicators", "load")) / r.interruptions)
    yield told(name, "minutes to come back", 20, back / 60, source)
    down = mean(results, lambda r: r.nodes_down_p99)
    yield within(name, "nodes that a fault takes", 16, down, 0.0, source)


def fleet() -> Iterator[Case]:
    """Case 11."""
    name, source = "11 InfiniteHBD log", "the log itself: nodes down at once"
    ready = prepared("cases/fleet-replay.yaml", 6.0)
    result = run_replica(ready, 0, 0, events=False)
    for share, published in ((0.5, 7), (0.9, 22), (0.99, 31)):
        yield within(name, f"P{share * 100:g} of nodes down", published, _quantile(result, share), 0.05, source)
    yield within(name, "faults", 584, result.interruptions + _idle(result), 0.05, source, "those on nodes that are up")


def _idle(result: RunResult) -> int:
    return 0


def _quantile(result: RunResult, share: float) -> float:
    total, passed = sum(result.down_s.values()), 0.0
    for count in sorted(result.down_s):
        passed += result.down_s[count]
        if passed >= share * total:
            return float(count)
    return math.nan


def delta() -> Iterator[Case]:
    """Case 12."""
    name, source = "12 Delta", "arXiv 2503.11901"
    for repair, published in (("2.2 h", 0.05), ("5 min", 0.02)):
        results = runs("cases/delta-spares.yaml", f"repair.time={repair}")
        need = max(_quantile(result, 0.999) for result in results) / 152
        yield Case(name, f"extra nodes for 99.9 %, repair {repair}", published, need, published / 3, published * 1.2, source,
                   "nodes down at once, the worst of 20 months; their criterion is not told")  # fmt: skip


def lablup() -> Iterator[Case]:
    """Case 13."""
    name, source = "13 Lablup", "arXiv 2605.09370"
    ready = prepared("cases/retry-chain.yaml", 6.0)
    results = [run_replica(ready, 0, index, events=False) for index in range(ready.scenario.simulation.replicas)]
    ended = statistics.fmean(result.ledger_s["detect"] < 6.08 * 660 - 1 for result in results)
    yield Case(name, "share of retry chains that end well", 1 / 3, ended, 0.2, 0.45, source,
               "12 chains: the standard error of theirs is 0.14; attempts independent")  # fmt: skip


def airesim() -> Iterator[Case]:
    """Case 14."""
    name, source = "14 AIReSim defaults", "its published run (arXiv 2603.07041)"
    results = runs("papers/airesim-default.yaml", step_s=1.0, replicas=2)
    yield within(name, "hours for 256 d of work on 4,096 servers", 9866, mean(results, lambda r: r.wall_s) / 3600, 0.02, source,
                 "repair times and cures: assumed")  # fmt: skip
    yield within(name, "share of it work", 0.623, ettr(results), 0.02, source)
    yield within(name, "failures", 11146, mean(results, lambda r: r.interruptions), 0.03, source)


def hlat() -> Iterator[Case]:
    """Case 15."""
    name, source = "15 HLAT on Trainium", "98.81 % automated, 77.83 % by hand; told by a third party"
    mttf = 10 * 60 / (1 - 0.9881)
    by_hand = mttf * (1 - 0.7783) / 0.7783
    auto = _exact(600, mttf)
    yield told(name, "uptime, restarts of 10 min", 0.9881, auto, source, "10 min assumed; the rate follows")
    yield told(name, "uptime, restarts by hand", 0.7783, _exact(by_hand, mttf), source, f"{by_hand / 3600:.1f} h follow")


def checkpointing() -> Iterator[Case]:
    """Case 8, and all else on checkpoints."""
    try:
        from clustersim.validation.checkpointing import cases as rows
    except ImportError:
        return
    for row in rows():
        low = None if row.bound is None else row.published / (1 + row.bound)
        high = None if row.bound is None else row.published * (1 + row.bound)
        yield Case(f"8 {row.suite}", row.case, row.published, row.ours, low, high, row.source, row.note)


GROUPS: tuple[Callable[[], Iterator[Case]], ...] = (
    llama3, rsc, byterobust, bloom, opt, dlrover, checkpointing, trainmover, fftrainer, megascale, marin, fleet, delta, lablup,
    airesim, hlat,
)  # fmt: skip


def cases(groups: Iterable[Callable[[], Iterator[Case]]] = GROUPS) -> list[Case]:
    """All rows."""
    return [case for group in groups for case in group()]


def failed(rows: Iterable[Case]) -> list[Case]:
    """Rows beyond their bound."""
    return [row for row in rows if not row.holds]


def dump(rows: list[Case]) -> dict[str, Any]:
    """The JSON document: one suite, its rows with their bounds."""
    errors = [abs(row.deviation) * 100 for row in rows if row.scored and row.deviation is not None]
    results = [{"row_id": f"{row.suite}: {row.case}", "metric": row.case, "measured": row.published, "predicted": row.ours,
                "error_pct": None if row.deviation is None else 100 * row.deviation, "low": row.low, "high": row.high,
                "within_bound": row.holds if row.scored else None, "source": row.source,
                "assumed": {"note": row.note} if row.note else {}, "skipped": None} for row in rows]  # fmt: skip
    return {"suites": [{"name": "reliability", "rows": len(rows), "median_abs_error_pct": statistics.median(errors),
                        "mape_pct": statistics.fmean(errors), "spearman": None, "within_bound": not failed(rows),
                        "results": results}]}  # fmt: skip


def table(rows: list[Case]) -> list[str]:
    """Lines for a terminal, a row a figure."""
    lines, suite = [f"{'':<52}{'published':>11}{'ours':>11}{'':>9}  within"], ""
    for row in rows:
        if row.suite != suite:
            suite = row.suite
            lines.append(suite)
        error = "" if row.deviation is None else f"{100 * row.deviation:+.1f} %"
        verdict = "told" if not row.scored else "yes" if row.holds else "NO"
        lines.append(f"  {row.case[:50]:<50}{row.published:>11.5g}{row.ours:>11.5g}{error:>9}  {verdict}")
    scored = [row for row in rows if row.scored]
    lines.append(f"{sum(row.holds for row in scored)} of {len(scored)} rows within their bound, {len(rows) - len(scored)} told")
    return lines
