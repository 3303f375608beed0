"""What every measured pipeline shows beyond its profile and its bubble: the slowest of many sets the pace."""

from __future__ import annotations

from clustersim.workload.order_statistics import expected_maximum
from clustersim.workload.stack import Stack


def straggle_share(stack: Stack, gpus: int, ranks: int) -> float:
    """Share of the busy time by which the steady state is longer: the slowest of all GPUs, and of the stages at each
    pass."""
    jitter = stack.pass_jitter * expected_maximum(ranks) if ranks > 1 else 0.0
    return stack.rank_spread * expected_maximum(gpus) + jitter
