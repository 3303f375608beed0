"""Interleaved 1F1B: several chunks a rank, microbatches in groups, 1F1B over (chunk, microbatch).

The group is how many microbatches pass one chunk before the next chunk starts. Megatron-LM takes g = p unless told
otherwise and refuses m mod g in 1 … p−1; torch and JaxPP take g = m ÷ max(1, ⌊m/p⌋) and refuse m that this does not
divide. Here every m runs: the default is torch's group where it divides, else the smallest that Megatron-LM accepts.
A group that the user chooses may leave a small last group behind: it runs if its order can be executed, and a note
says what it costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from clustersim.pipeline.check import find_cycle
from clustersim.pipeline.ops import Action, program
from clustersim.pipeline.orders import alternate, interleaved_rows
from clustersim.pipeline.schedule import Pipeline, schedule

Order = Callable[..., Iterator[Action]]
Group = Annotated[
    int | None,
    Field(ge=1, description="microbatches that pass one chunk before the next; at least pp to keep all ranks busy"),
]


def group_size(pipe: Pipeline, group: int | None) -> int:
    """The group in force: the user's, else m ÷ max(1, ⌊m/p⌋) where that is whole, else the smallest without a small
    rest."""
    if group is not None:
        return group
    p, m = pipe.ranks, pipe.microbatches
    rounds = max(1, m // p)
    if m % rounds == 0:
        return m // rounds
    return next(size for size in range(p, m + 1) if not 0 < m % size < p)


def warm_up(pipe: Pipeline, rank: int, group: int | None, extra: int = 0) -> int:
    """Forwards before the first backward: min(mv, (v−1)g + 2(p−1−r) + 1 + extra)."""
    ahead = (pipe.chunks - 1) * group_size(pipe, group) + 2 * (pipe.ranks - 1 - rank) + 1 + extra
    return min(pipe.microbatches * pipe.chunks, ahead)


def held(pipe: Pipeline, rank: int, group: int | None = None) -> float:
    """(w + 1)/v with w Megatron's count of warm-up forwards."""
    return warm_up(pipe, rank, group) / pipe.chunks


@lru_cache(maxsize=1024)
def deadlocks(order: Order, pipe: Pipeline, group: int) -> bool:
    """Whether the order, played rank by rank, waits for itself."""
    ranks = [list(order(pipe, rank, group=group)) for rank in range(pipe.ranks)]
    return find_cycle(program(ranks, pipe.microbatches)) is not None


def group_rules(pipe: Pipeline, group: int | None, order: Order) -> Iterator[str]:
    """g <= m, and an order that can be executed: groups below p, or a small last group, may wait for themselves.

    The order itself is played, shortened to as many groups as can matter.
    """
    p, m, size = pipe.ranks, pipe.microbatches, group_size(pipe, group)
    if group is None or pipe.chunks == 1:
        return
    if group > m:
        yield f"needs group <= m={m}, got group={group}"
        return
    rest = m % size
    if size >= p and not 0 < rest < p:
        return
    short = pipe._replace(microbatches=min(m, size * (3 + -(-2 * p // size)) + rest))
    if not deadlocks(order, short, size):
        return
    if m < p:
        yield f"deadlocks in order with group={group}: m={m} < pp={p}: raise the global batch or lower pp"
    elif size < p:
        yield f"deadlocks in order: group={group} < pp={p}; needs pp={p} <= group <= m={m}"
    else:
        yield f"deadlocks in order: group={group} leaves m mod group = {rest} < pp={p}; needs m mod group = 0 or >= pp"


def rules(pipe: Pipeline, group: int | None = None) -> Iterator[str]:
    """A group that the user chose must give an order that can be executed."""
    yield from group_rules(pipe, group, interleaved_1f1b)


def group_notes(pipe: Pipeline, group: int | None = None) -> Iterator[str]:
    """Sizes that run here but that Megatron-LM or torch refuse, and why they are slow."""
    p, m, g = pipe.ranks, pipe.microbatches, group_size(pipe, group)
    if m < p:
        yield f"m={m} < pp={p}: raise the global batch or lower pp (Megatron-LM refuses it)"
    elif g < p:
        yield f"group={g} < pp={p}: it runs, with a bubble in every group (Megatron-LM refuses it)"
    elif 0 < m % g < p:
        left = f"m={m} leaves {m % g} microbatches after groups of {g}, fewer than pp={p}"
        yield f"{left}: the pipeline stalls (Megatron-LM refuses it)"
    if m % max(1, m // p):
        yield f"torch.distributed.pipelining refuses m={m}: it is no multiple of floor(m/p) = {m // p}"


@schedule(
    "interleaved-1f1b",
    aliases=("interleaved", "vpp"),
    defined="any m; a chosen group g <= m must not deadlock in order (p <= g, m mod g = 0 or >= p never does)",
    in_flight=held,
    formula="((v-1)g + 2(p-1-r) + 1)/v",
    rules=rules,
    notes=group_notes,
    chunks=None,
    default_chunks=2,
    source="Narayanan et al., arXiv 2104.04473; Megatron-LM, torch, JaxPP, sail-sg agree",
)
def interleaved_1f1b(pipe: Pipeline, rank: int, *, group: Group = None) -> Iterator[Action]:
    """1F1B over chunks: a group of microbatches passes each chunk in turn, backward in the reverse order of chunks."""
    size = group_size(pipe, group)
    forwards, backwards = interleaved_rows((pipe.ranks, pipe.microbatches), rank, pipe.chunks, size)
    yield from alternate(forwards, backwards, warm_up(pipe, rank, group))
