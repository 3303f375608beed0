"""What a checkpoint engine needs and a cluster does not have: room in host memory, room on storage, patience."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clustersim.errors import DoesNotFit, ImpossibleError, Problem

if TYPE_CHECKING:
    from clustersim.run.prepared import Prepared


def check_room(prepared: Prepared) -> None:
    """Refuse engines that cannot work on this cluster.

    Raises:
        DoesNotFit: staged copies do not fit into host memory, or the copies that are kept into the storage's room.
        ImpossibleError: a save stalls for longer than the watchdog waits.
    """
    if prepared.save is None:
        return
    problem = memory_problem(prepared) or room_problem(prepared)
    if problem:
        raise DoesNotFit(problem)
    problem = watchdog_problem(prepared)
    if problem:
        raise ImpossibleError(problem)


def memory_problem(prepared: Prepared) -> Problem | None:
    """What is wrong with the host memory that the engine needs; None: nothing."""
    engine, node = prepared.scenario.checkpoint, prepared.scenario.cluster.node
    needed, has = engine.host_memory(prepared.site), node.host_memory
    if engine.resident + needed <= has:
        return None
    over = engine.resident + needed - has
    return Problem(
        "checkpoint",
        f"engine {engine.kind} holds {gigabytes(needed)} of host memory a node beside {gigabytes(engine.resident)} of "
        f"training's own, {gigabytes(over)} more than the node's {gigabytes(has)}; fewer copies or snapshots, more nodes, or "
        "an engine that stages less would fit",
    )


def room_problem(prepared: Prepared) -> Problem | None:
    """What is wrong with the storage's room; None: nothing. The oldest copy goes only when a new one is complete."""
    engine, storage = prepared.scenario.checkpoint, prepared.scenario.cluster.storage
    size = max((transfer.bytes for transfer in prepared.transfers if transfer.channel == "storage"), default=0.0)
    needed = (engine.keep + 1) * size
    if needed <= storage.room:
        return None
    fits = int(storage.room // size) - 1 if size else 0
    right = f"keep {fits} would fit" if fits > 0 else "free some space, or save fewer bytes"
    return Problem(
        "checkpoint.keep",
        f"{engine.keep} needs room for {engine.keep + 1} saves of {gigabytes(size)} (the oldest goes when the newest is "
        f"complete), and cluster.storage has {gigabytes(storage.room)} free; {right}",
    )


def watchdog_problem(prepared: Prepared) -> Problem | None:
    """Whether saves kill the job; None: they do not."""
    limit = prepared.scenario.checkpoint.watchdog
    longest = max(save.stall_s for save in prepared.saves)
    if limit is None or longest <= limit:
        return None
    return Problem(
        "checkpoint.watchdog",
        f"a save stalls training for {longest:,.6g} s, longer than the watchdog's {limit:,.6g} s: "
        "every save kills the job; raise the watchdog, save in the background, or write faster",
    )


def gigabytes(size: float) -> str:
    """A size in GB, for people."""
    return f"{size / 1e9:,.1f} GB"
