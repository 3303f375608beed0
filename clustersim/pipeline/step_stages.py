"""What each virtual stage holds, and what its passes cost."""

from __future__ import annotations

from functools import lru_cache

from clustersim.workload.model import TransformerModel
from clustersim.workload.stages import StageContent


def spread(layers: int, stages: int) -> list[int]:
    """Layers of each stage: as even as can be, what is left over evenly in the middle, so that the ends stay lightest.

    126 layers on 128 stages leave the first and last empty (embedding and head alone); 30 on 8 give 3, 4 × 6, 3.
    """
    base, extra = divmod(layers, stages)
    counts = [base] * stages
    inner = stages - 2
    if inner <= 0 or extra > inner:
        middle = list(range(stages)) if stages < 3 else [*range(1, stages - 1), 0, stages - 1]
        for index in middle[:extra]:
            counts[index] += 1
        return counts
    for i in range(extra):
        counts[1 + int((i + 0.5) * inner / extra)] += 1
    return counts


def _default(model: TransformerModel, stages: int) -> list[int]:
    """Layers spread evenly; a prediction layer of the last stage takes the place of a layer there."""
    counts = spread(model.layers + model.mtp_layers, stages)
    if counts[-1] < model.mtp_layers:
        return spread(model.layers, stages)
    counts[-1] -= model.mtp_layers
    return counts


def contents(
    model: TransformerModel, stages: int, frozen: int = 0, counts: list[int] | None = None
) -> list[StageContent]:
    """What each of ``stages`` virtual stages holds; ``counts`` are its layers (default: spread evenly).

    The first ``moe.dense_layers`` layers are dense; the first ``frozen`` are not trained.
    """
    first_moe = model.moe.dense_layers if model.moe is not None else model.layers
    return list(_contents(tuple(counts or _default(model, stages)), first_moe, model.mtp_layers, frozen))


@lru_cache(maxsize=1024)
def _contents(counts: tuple[int, ...], first_moe: int, mtp: int, frozen: int) -> tuple[StageContent, ...]:
    held, at, last = [], 0, len(counts) - 1
    for index, count in enumerate(counts):
        dense = min(max(first_moe - at, 0), count)
        still = min(max(frozen - at, 0), count)
        still_dense = min(max(min(frozen, first_moe) - at, 0), count)
        idle = still == count and frozen > 0 and index < last
        own = mtp if index == last else 0
        held.append(
            StageContent(dense, count - dense, index == 0, index == last, own, still_dense, still - still_dense, idle)
        )
        at += count
    return tuple(held)
