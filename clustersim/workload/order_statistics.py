"""The slowest of many: expected maximum of normal values."""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist


@lru_cache(maxsize=1024)
def expected_maximum(count: int) -> float:
    """Mean of the largest of ``count`` standard normal values (Blom 1958: Φ⁻¹((n − 0.375) ÷ (n + 0.25))); 0 for one."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0
