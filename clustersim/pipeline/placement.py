"""Which rank holds which stage: the four placements that published schedules use.

==============  ================================================================  ==============================
placement       rank of stage s (p ranks)                                         used by
==============  ================================================================  ==============================
loop            s mod p                                                           1F1B, interleaved, Seq1F1B
v, zigzag       s mod p when ⌊s/p⌋ is even, else p − 1 − (s mod p)                 ZB-V, DualPipeV (v = 2), Hanayo
bidirectional   chain c of 2f: down from rank c·p/f, or the same mirrored (up)    Chimera, DualPipe (f = 1)
==============  ================================================================  ==============================
"""

from __future__ import annotations

from enum import StrEnum


class Placement(StrEnum):
    """How stages are laid on ranks; see the module's table."""

    LOOP = "loop"
    V = "v"
    ZIGZAG = "zigzag"
    BIDIRECTIONAL = "bidirectional"


def rank_of_stage(placement: Placement, ranks: int, chunks: int, chains: int = 1) -> list[int]:
    """The rank of every stage name, chain after chain."""
    if placement is Placement.BIDIRECTIONAL:
        return [rank for chain in range(chains) for rank in chain_ranks(ranks, chains, chain)]
    names = range(ranks * chunks)
    if placement is Placement.LOOP:
        return [stage % ranks for stage in names]
    return [stage % ranks if stage // ranks % 2 == 0 else ranks - 1 - stage % ranks for stage in names]


def chain_ranks(ranks: int, chains: int, chain: int) -> list[int]:
    """Ranks of one chain's stages, first to last: chains 0 … f−1 go down, f … 2f−1 up (Chimera, section 3.6)."""
    down = chains // 2
    start = chain % down * (ranks // down)
    order = [(start + position) % ranks for position in range(ranks)]
    return order if chain < down else [ranks - 1 - rank for rank in order]


def hops(stage_rank: list[int], chains: int = 1) -> int:
    """Stage boundaries that cross ranks, summed over the chains: messages one unit sends in one direction."""
    per_chain = len(stage_rank) // chains
    return sum(
        stage_rank[first] != stage_rank[first + 1]
        for chain in range(chains)
        for first in range(chain * per_chain, (chain + 1) * per_chain - 1)
    )
