"""Predictions of pipeline steps from measured op times, against the steps measured in the same rounds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustersim.pipeline.costs import Costs
from clustersim.pipeline.graph import Graph, compile
from clustersim.pipeline.ops import Kind
from clustersim.pipeline.p2p import P2P
from clustersim.pipeline.replay import replay_many
from clustersim.pipeline.schedule import Pipeline, get_schedule

CHUNKS = {"gpipe": 1, "1f1b": 1, "interleaved-1f1b": 2, "interleaved-zb": 2, "zb-v": 2}
"""Stages a rank. Op times come from the same schedule at another number of microbatches: what is in flight decides which
activations still lie in a cache (1F1B's ops are a quarter faster than GPipe's on the machine tried)."""
P2P_OF: dict[str, P2P] = {"1f1b": "blocking"}
"""How torch runs messages: its 1F1B waits for each batch of a send and a receive, all others send and go on."""
DRAWS = 40


class Prediction(NamedTuple):
    """One configuration. Seconds; ``low`` to ``high``: where 95 % of single steps should lie."""

    name: str
    measured: float
    predicted: float
    low: float
    high: float
    spread: float
    """Half of the range between the quartiles of the measured steps."""
    rounds: int

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.measured - 1

    @property
    def inside(self) -> bool:
        """Whether the measurement lies in the interval."""
        return self.low <= self.measured <= self.high

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return {"name": self.name, "measured_s": self.measured, "predicted_s": self.predicted, "low_s": self.low,
                "high_s": self.high, "spread_s": self.spread, "error_pct": 100 * self.error, "rounds": self.rounds}  # fmt: skip


def graph_of(name: str, ranks: int, microbatches: int) -> Graph:
    """The compiled graph of clustersim's own schedule of that name."""
    import clustersim.scenario.schema  # noqa: F401 - registers all parts

    schedule = get_schedule(name)
    chunks = CHUNKS[name]
    program = schedule.program(Pipeline(ranks=ranks, microbatches=microbatches, chunks=chunks))
    return compile(program, p2p=P2P_OF.get(name, "overlapped"))


def drawn_durations(graph: Graph, samples: dict[str, list[float]], rng: np.random.Generator, draws: int) -> np.ndarray:
    """(draws, ops) seconds: each op takes one of the times seen for its stage and kind."""
    durations = np.zeros((draws, graph.ops))
    kinds = list(Kind)
    for op in range(graph.ops):
        stage, kind = int(graph.stage[op]), kinds[int(graph.kind[op])].value
        durations[:, op] = rng.choice(samples[f"{stage}:{kind}"], size=draws)
    return durations


def _round_steps(graph: Graph, samples: dict[str, list[float]], message: float, extra: float, seed: int) -> np.ndarray:
    """(draws,) predicted steps of one round; ``extra``: seconds a rank spends around each op."""
    rng = np.random.default_rng(seed)
    durations = drawn_durations(graph, samples, rng, DRAWS) + extra
    delays = Costs({}, latency=message).delays(graph)
    return np.asarray(replay_many(graph, durations, delays))


def extra_per_op(graph: Graph, samples: dict[str, list[float]], message: float, measured: float) -> float:
    """Seconds around each op that the op times do not hold (the runtime of the schedule), from a calibration step.

    The makespan grows by the ops on its longest path, about those of the busiest rank.
    """
    means = {key: [float(np.mean(values))] for key, values in samples.items()}
    inner = float(_round_steps(graph, means, message, 0.0, 0)[0])
    return max(0.0, measured - inner) / max(len(ops) for ops in graph.rank_ops)


def _merged(fits: Iterable[dict[str, Any]]) -> dict[str, list[float]]:
    merged: dict[str, list[float]] = {}
    for fit in fits:
        merged.update(fit["ops"])
    return merged


def _slowest(items: Iterable[dict[str, Any]]) -> float:
    return max(item["step_s"][0] for item in items)


def predictions(seen: dict[str, Any]) -> list[Prediction]:
    """All configurations of one worker's file."""
    ranks, rounds = seen["ranks"], seen["rounds"]
    calibrated = []
    for item in rounds:
        by_name = {}
        for fits in zip(*item["fits"], strict=True):
            name, samples = fits[0]["name"], _merged(fits)
            graph = graph_of(name, ranks, fits[0]["microbatches"])
            by_name[name] = (samples, extra_per_op(graph, samples, item["message_s"], _slowest(fits)))
        calibrated.append(by_name)
    found = []
    for index, first in enumerate(rounds[0]["tests"][0]):
        name, microbatches = first["name"], first["microbatches"]
        graph = graph_of(name, ranks, microbatches)
        steps, measured = [], []
        for number, (item, by_name) in enumerate(zip(rounds, calibrated, strict=True)):
            samples, extra = by_name[name]
            steps.append(_round_steps(graph, samples, item["message_s"], extra, number))
            measured.append(_slowest(rank[index] for rank in item["tests"]))
        found.append(_summed(f"{name} m={microbatches}", np.array(measured), np.array(steps)))
    return found


def _summed(name: str, measured: np.ndarray, steps: np.ndarray) -> Prediction:
    low, high = np.quantile(steps, [0.025, 0.975])
    quartiles = np.quantile(measured, [0.25, 0.75])
    middle = float(np.median(steps.mean(axis=1)))
    return Prediction(name, float(np.median(measured)), middle, float(low), float(high),
                      float(quartiles[1] - quartiles[0]) / 2, len(measured))  # fmt: skip


def order_check(found: list[Prediction]) -> tuple[int, int]:
    """(pairs in the right order, pairs whose measured gap exceeds the spread) of schedules at equal microbatches."""
    right = decided = 0
    for i, a in enumerate(found):
        for b in found[i + 1 :]:
            if a.name.split()[1] != b.name.split()[1] or abs(a.measured - b.measured) <= max(a.spread, b.spread):
                continue
            decided += 1
            right += (a.measured < b.measured) == (a.predicted < b.predicted)
    return right, decided


def report(path: Path | str) -> dict[str, Any]:
    """Predictions of a worker's file, their median error, the order of schedules, the load."""
    seen = json.loads(Path(path).read_text(encoding="utf-8"))
    found = predictions(seen)
    right, decided = order_check(found)
    loads = [item["load"] for item in seen["rounds"]]
    return {
        "rows": [item.row() for item in found],
        "median_abs_error_pct": 100 * float(np.median([abs(item.error) for item in found])),
        "inside_interval": sum(item.inside for item in found),
        "order_right": right,
        "order_decided": decided,
        "load_average": [min(loads), max(loads)],
        "size": seen["size"],
    }
