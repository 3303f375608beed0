"""The longest path as machine code. Imported only when numba is there and worth its start-up time.

Compiled once per machine and cached on disk. Without fastmath: additions keep their order, so the bits are those of
the Python loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

_jit: Callable[[Callable[..., None]], Callable[..., None]] = numba.njit(cache=True, nogil=True)


@_jit
def one(walk: Any, more: Any, more_at: Any, duration: Any, delay: Any, release: Any, start: Any, end: Any) -> None:
    """Fill start (nodes,) and end (nodes + 1,) of one replica; see ``kernel.Tables`` for the tables."""
    nodes = walk.shape[0]
    end[nodes] = -1.0  # what absent edges wait for: before every release, so it never decides
    row, step_of_row = 0, more_at[0, 0]
    for k in range(nodes):
        node = walk[k, 0]
        first = end[walk[k, 1]] + delay[walk[k, 2]]
        second = end[walk[k, 3]] + delay[walk[k, 4]]
        begin = release[node]
        begin = first if first > begin else begin
        begin = second if second > begin else begin
        if k == step_of_row:
            for edge in range(more_at[row, 1], more_at[row, 2]):
                ready = end[more[edge, 0]] + delay[more[edge, 1]]
                begin = ready if ready > begin else begin
            row += 1
            step_of_row = more_at[row, 0]
        start[node] = begin
        end[node] = begin + duration[node]


@_jit
def many(
    walk: Any,
    more: Any,
    more_at: Any,
    duration: Any,
    delay: Any,
    release: Any,
    wanted: Any,
    start: Any,
    end: Any,
    result: Any,
) -> None:
    """Fill result (replicas, wanted) with ends; start and end are scratch that every replica uses again."""
    for replica in range(duration.shape[0]):
        hops = delay[min(replica, delay.shape[0] - 1)]
        one(walk, more, more_at, duration[replica], hops, release, start, end)
        for index in range(wanted.shape[0]):
            result[replica, index] = end[wanted[index]]
