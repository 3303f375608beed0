"""Closed forms that a searched optimum is compared with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clustersim.scenario.schema import Scenario


def references_of(scenario: Scenario, path: str) -> dict[str, float]:
    """Young's, Daly's and the exact interval (seconds) for ``checkpoint.interval``; nothing for other paths.

    They take the stall as the cost of a save and the mean time between interruptions of all causes, as if failures were
    exponential and independent, which the scenario's need not be.
    """
    if path != "checkpoint.interval":
        return {}
    from clustersim.checkpoint.optimum import daly, exact, young
    from clustersim.study.work import prepare

    prepared = prepare(scenario)
    if prepared.save is None or not math.isfinite(prepared.mtbf_s):
        return {}
    stall, mtbf = prepared.save.stall_s, prepared.mtbf_s
    found = {
        "Young 1974": young(stall, mtbf),
        "Daly 2006": daly(stall, mtbf),
        "exact (exponential failures)": exact(stall, mtbf),
    }
    return {name: value for name, value in found.items() if value > 0}
