"""Uneven cuts of a sequence: slices of equal FLOP, and slices by dynamic programming over measured times.

Under causal attention a token attends to all before it, so equal lengths make the last slice the slowest. Seq1F1B
(arXiv 2406.03488) cuts where the FLOP summed from the start reach i/k of the total. Per token and layer: 8h² + 4h·ffn
for the matrix products, 4h + 3·heads per attended token for attention; 4hV per token for the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from clustersim.errors import InputError, Problem


@dataclass(frozen=True)
class TokenFlop:
    """FLOP of the token at position t (from 1): ``linear`` + ``attention`` × t."""

    linear: float
    attention: float

    @classmethod
    def of(cls, *, layers: int, hidden: int, ffn: int, heads: int, vocab: int = 0) -> TokenFlop:
        """Of a dense transformer, forward pass, with causal attention (Seq1F1B's count)."""
        linear = layers * (8.0 * hidden * hidden + 4.0 * hidden * ffn) + 4.0 * hidden * vocab
        return cls(linear, layers * (4.0 * hidden + 3.0 * heads))

    def up_to(self, tokens: float) -> float:
        """FLOP of the first ``tokens`` tokens."""
        return self.linear * tokens + self.attention * tokens * (tokens + 1) / 2

    def position(self, flop: float) -> float:
        """The (real) number of tokens whose FLOP sum to ``flop``: the root of :meth:`up_to`."""
        slope = self.linear + self.attention / 2
        if self.attention == 0:
            return flop / slope
        return 2 * flop / (slope + math.sqrt(slope * slope + 2 * self.attention * flop))


def equal_flop_slices(tokens: int, slices: int, flop: TokenFlop, multiple: int = 1) -> list[int]:
    """Lengths of ``slices`` slices whose FLOP are as equal as lengths in steps of ``multiple`` tokens let them be.

    Cuts are the roots of "FLOP so far = i/k of all", rounded to the nearest multiple.

    Raises:
        InputError: when the sequence is too short for so many slices, or ``multiple`` does not divide it.
    """
    if slices < 1 or multiple < 1 or tokens % multiple or tokens // multiple < slices:
        sentence = f"cannot cut {tokens} tokens into {slices} slices of multiples of {multiple} tokens"
        raise InputError(Problem("slices", sentence))
    total, blocks = flop.up_to(tokens), tokens // multiple
    cuts = [0]
    for index in range(1, slices):
        near = round(flop.position(total * index / slices) / multiple)
        cuts.append(min(max(near, cuts[-1] + 1), blocks - (slices - index)))
    cuts.append(blocks)
    return [(after - before) * multiple for before, after in pairwise(cuts)]


def even_slices(tokens: int, slices: int, multiple: int = 1) -> list[int]:
    """Lengths as equal as steps of ``multiple`` let them be."""
    return equal_flop_slices(tokens, slices, TokenFlop(1.0, 0.0), multiple)


def slice_shares(lengths: list[int], flop: TokenFlop) -> list[float]:
    """FLOP of each slice ÷ FLOP of the sequence, in order; their sum is 1."""
    total, at, shares = flop.up_to(sum(lengths)), 0, []
    for length in lengths:
        shares.append((flop.up_to(at + length) - flop.up_to(at)) / total)
        at += length
    return shares


def fastest_slices(tokens: int, ranks: int, time: Callable[[int, int], float], multiple: int) -> list[int]:
    """TeraPipe's cut: lengths that minimise Σ t + (p − 1)·max t, any number of slices (arXiv 2102.07988; recalled).

    Args:
        tokens: length of the sequence.
        ranks: pipeline ranks p.
        time: (tokens before, length) → seconds of that slice on one rank.
        multiple: lengths are multiples of this.
    """
    blocks = tokens // multiple
    cost = {(a, b): time(a * multiple, (b - a) * multiple) for a in range(blocks) for b in range(a + 1, blocks + 1)}
    best, lengths = math.inf, [tokens]
    for longest in sorted(set(cost.values())):
        if (ranks - 1) * longest >= best:
            break
        total, cuts = _least_sum(blocks, cost, longest)
        if total + (ranks - 1) * longest < best:
            best = total + (ranks - 1) * longest
            lengths = [(after - before) * multiple for before, after in pairwise(cuts)]
    return lengths


def _least_sum(blocks: int, cost: dict[tuple[int, int], float], longest: float) -> tuple[float, list[int]]:
    """Least total time of slices no longer than ``longest``, and their cuts."""
    least: list[tuple[float, int]] = [(0.0, 0)] + [(math.inf, 0)] * blocks
    for end in range(1, blocks + 1):
        for start in range(end):
            step = cost[start, end]
            if step <= longest and least[start][0] + step < least[end][0]:
                least[end] = least[start][0] + step, start
    cuts = [blocks]
    while cuts[-1] and math.isfinite(least[blocks][0]):
        cuts.append(least[cuts[-1]][1])
    return least[blocks][0], cuts[::-1]
