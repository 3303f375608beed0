"""Independent random streams, one for each (seed, replica, name, ids).

A stream's numbers depend on nothing but its own key, so adding a component to a scenario never shifts another's numbers,
and two scenarios compared under one seed see the same failures (common random numbers).
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, replica: int, name: str, *ids: int) -> np.random.Generator:
    """The random stream called ``name`` of one replica.

    Args:
        seed: the scenario's seed, at least 0.
        replica: index of the replica, at least 0.
        name: what draws from the stream, such as ``"failure/gpu"``.
        ids: indices that tell apart streams of one name, such as a node's.

    Returns:
        A generator over PCG64DXSM, seeded by ``SeedSequence(seed, spawn_key=(replica, crc32(name), *ids))``.
    """
    key = np.random.SeedSequence(seed, spawn_key=(replica, zlib.crc32(name.encode()), *ids))
    return np.random.Generator(np.random.PCG64DXSM(key))
