"""vTrain's single-node table, read as what it is: 32 per-layer times, not 900 measurements.

Its step times are composed by their authors from one time a layer and microbatch for each of 32 combinations of hidden
size, tensor parallelism and microbatch, an optimizer line and an all-reduce table. The per-layer time is recovered as the
slope of step time over layers at equal everything else, and so is the prediction.
"""

from __future__ import annotations

import statistics

from clustersim.validation.job import job_of
from clustersim.validation.predict import predicted_step
from clustersim.validation.results import Result
from clustersim.validation.rows import Row, packaged

Key = tuple[int, int, int]


def vtrain_single() -> list[Result]:
    """One result a combination: seconds of one layer for one microbatch, forward, recomputation and backward."""
    groups: dict[Key, list[Row]] = {}
    for row in packaged("vtrain-single"):
        key = (row.whole("hidden") or 0, row.whole("tp") or 0, row.whole("micro_batch") or 0)
        groups.setdefault(key, []).append(row)
    return [_slope(key, rows) for key, rows in sorted(groups.items())]


def _slope(key: Key, rows: list[Row]) -> Result:
    name = f"h{key[0]}_tp{key[1]}_mbs{key[2]}"
    same: dict[tuple[int, ...], dict[int, Row]] = {}
    for row in rows:
        rest = tuple(row.whole(column) or 0 for column in ("pp", "dp_derived", "global_batch"))
        same.setdefault(rest, {})[row.whole("n_layers") or 0] = row
    pairs = sorted((rest, by_layers) for rest, by_layers in same.items() if len(by_layers) > 1)
    if not pairs:
        return Result(name, "layer_time_s", skipped="no two rows differ in their layers alone")
    plain = [(rest, by_layers) for rest, by_layers in pairs if rest[0] == pairs[0][0][0]]
    measured, predicted = [], []
    for rest, by_layers in plain[:3]:
        few, many = min(by_layers), max(by_layers)
        work = (many - few) / rest[0] * (rest[2] / (rest[1] * key[2]) + rest[0] - 1)
        low, high = by_layers[few], by_layers[many]
        measured.append((_seconds(high) - _seconds(low)) / work)
        predicted.append((predicted_step(job_of(high)) - predicted_step(job_of(low))) / work)
    note = {"layer_time_s": "slope of step time over layers ÷ (microbatches + stages - 1)"}
    middle = statistics.median(measured), statistics.median(predicted)
    return Result(name, "layer_time_s", *middle, note, group=f"h{key[0]}")


def _seconds(row: Row) -> float:
    return row.number("step_time_s") or 0.0
