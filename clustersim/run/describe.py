"""What an engine does in a scenario: stall, time until durable, bytes and bandwidth by tier, memory, interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clustersim.checkpoint.interval import Auto, Costs
from clustersim.checkpoint.pattern import Outlay
from clustersim.checkpoint.played import PlayedPattern
from clustersim.checkpoint.tiers import Tier

if TYPE_CHECKING:
    from clustersim.run.prepared import Prepared


def describe(prepared: Prepared) -> dict[str, Any]:
    """The engine of a prepared scenario in numbers, undisturbed.

    Returns:
        ``engine``; of a save that meets no other ``stall_s`` without and ``stall_full_s`` with all tiers; ``tiers``: of each
        its ``every`` (saves), ``durable_s`` (from the start of such a save), ``durable_mean_s`` (likewise, mean over the
        saves that repeat, with all that they wait for and share), ``bytes``, ``bandwidth_bytes_per_s`` (bytes ÷ the time
        that they take) and ``restore_s``; ``host_memory_bytes`` a node; ``in_flight`` (saves at once); ``stall_mean_s``: mean
        over the saves that repeat; ``meet``: whether those wait for, or share something with, each other; ``interval_s``
        and ``interval_steps`` (the one that rules, the other null); ``interval_best_s``: what ``auto`` would choose
        (null: nothing ever fails).
    """
    engine, site = prepared.scenario.checkpoint, prepared.site
    full, plain = prepared.saves[0] if prepared.saves else Outlay(0.0, ()), prepared.save or Outlay(0.0, ())
    return {
        "engine": engine.kind,
        "stall_s": plain.stall_s,
        "stall_full_s": full.stall_s,
        "stall_mean_s": _mean([leg.stall_s for leg in prepared.pattern.cycle]),
        "meet": isinstance(prepared.pattern, PlayedPattern) or any(leg.late_s > 0 for leg in prepared.pattern.cycle),
        "tiers": _tiers(prepared, full),
        "host_memory_bytes": engine.host_memory(site),
        "in_flight": engine.depth(site),
        "interval_s": prepared.every.seconds,
        "interval_steps": prepared.every.steps,
        "interval_best_s": Auto().resolve(Costs(plain.stall_s, plain.busy_s, prepared.mtbf_s)).seconds,
    }


def _tiers(prepared: Prepared, full: Outlay) -> dict[str, dict[str, float | None]]:
    """Rows of ``describe`` by tier."""
    storage = prepared.scenario.cluster.storage
    tiers: dict[str, dict[str, float | None]] = {}
    before: dict[Any, float] = {}
    for transfer, seconds in zip(prepared.transfers, prepared.transfer_s, strict=True):
        if transfer.tier is None:
            before[transfer.via] = before.get(transfer.via, 0.0) + transfer.bytes
            continue
        load = prepared.loads[transfer.tier]
        read = load.seconds
        if load.bytes:
            read += storage.alone_s(load.bytes, "read", load.clients, load.per_client or float("inf"))
        tiers[transfer.tier.value] = {
            "every": transfer.every,
            "durable_s": full.after_s(transfer.tier) or 0.0,
            "durable_mean_s": _durable_s(prepared, transfer.tier),
            "bytes": transfer.bytes + before.pop(transfer.via, 0.0) * (transfer.bytes > 0),
            "bandwidth_bytes_per_s": transfer.bytes / seconds if seconds > 0 else 0.0,
            "restore_s": read,
        }
    return tiers


def _durable_s(prepared: Prepared, tier: Tier) -> float | None:
    """From the start of a save's stall until a tier holds the copy: the mean over those that repeat; None: none does."""
    found = prepared.pattern.repeated()
    legs = zip(prepared.pattern.cycle, found.saved, found.lags.get(tier, []), strict=True) if found.lags.get(tier) else ()
    return _mean([leg.stall_s - leg.wait_s - saved + lag for leg, saved, lag in legs if lag < math.inf])


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
