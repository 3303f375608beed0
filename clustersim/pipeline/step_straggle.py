"""What every measured pipeline shows beyond its profile and its bubble: the slowest of many sets the pace."""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

from clustersim.workload.stack import Stack


@lru_cache(maxsize=1024)
def expected_maximum(count: int) -> float:
    """Mean of the largest of ``count`` standard normal values (Blom 1958: Φ⁻¹((n − 0.375) ÷ (n + 0.25))); 0 for one."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def straggle_share(stack: Stack, gpus: int, ranks: int) -> float:
    """Share of the busy time by which the steady state is longer: the slowest of all GPUs, and of the stages at each
    pass."""
    jitter = stack.pass_jitter * expected_maximum(ranks) if ranks > 1 else 0.0
    return stack.rank_spread * expected_maximum(gpus) + jitter
