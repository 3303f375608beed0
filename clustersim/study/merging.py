"""All shards of a study as one: what is there, what is missing, what is damaged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersim.errors import InputError, Problem
from clustersim.study.runner import Outcome
from clustersim.study.store import MANIFEST, PLAN, Contents, Store, record_key, write_atomically
from clustersim.study.sweeping import Sweep, label_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class Merged:
    """A study read back from its folder."""

    folder: Path
    manifest: dict[str, Any]
    contents: Contents
    outcomes: list[Outcome]
    expected: int
    found: int
    strangers: int
    """Records that belong to none of the study's points (another version, or points since removed)."""

    @property
    def conflicts(self) -> int:
        """Keys under which different results were found."""
        return len(self.contents.conflicts)

    def frame(self) -> pd.DataFrame:
        """A row a finished replica: the point's values, seed, replica and every metric."""
        import pandas as pd

        return pd.DataFrame(
            [{**outcome.point, "label": outcome.label, "seed": self.manifest["seed"], "replica": number, **replica}
             for outcome in self.outcomes for number, replica in enumerate(outcome.replicas) if replica is not None]
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """What ``results --json`` prints."""
        return {"study": self.manifest.get("study"), "seed": self.manifest.get("seed"), "replicas_found": self.found,
                "replicas_expected": self.expected, "torn_lines": self.contents.torn,
                "conflicts": self.contents.conflicts, "strangers": self.strangers,
                "points": [{"label": outcome.label, "point": outcome.point, "run": outcome.summaries()}
                           for outcome in self.outcomes]}  # fmt: skip

    def text(self) -> str:
        """What there is, in a few lines."""
        lines = [f"{self.found:,} of {self.expected:,} replicas of {len(self.outcomes)} points are finished."]
        lines += [f"{shard}: {count} torn line{'s' * (count > 1)} ignored (a crash; its replicas run again)"
                  for shard, count in self.contents.torn.items()]  # fmt: skip
        if self.strangers:
            lines.append(f"{self.strangers:,} records belong to no point of this study; they are left alone.")
        if self.found == self.expected and self.manifest.get("study") == "sweep":
            lines.append(f"{self.folder / 'table.csv'} is complete.")
        else:
            lines.append("Give the same command again to finish the rest.")
        return "\n".join(lines)


def merge(folder: Path | str) -> Merged:
    """Read a study's folder; write ``table.csv`` when every replica is there.

    Raises:
        InputError: the folder holds no study.
    """
    store = Store(folder)
    manifest = store.manifest()
    if manifest == PLAN:
        raise InputError(Problem("", f"{store.folder} holds a plan, which tells its results itself: see plan.json there"))
    if not _is_study(manifest):
        raise InputError(Problem("", f"{store.folder / MANIFEST} is no study: what it says does not fit together"))
    contents = store.load()
    points = manifest.get("points") or [{} for _ in manifest["hashes"]]
    labels = manifest.get("labels") or [label_of(point) for point in points]
    errors = manifest.get("errors") or [None] * len(points)
    hashes = iter(manifest["hashes"])
    count = manifest.get("replicas") or _most_replicas(contents)
    outcomes, used = [], 0
    for label, point, error in zip(labels, points, errors, strict=True):
        outcome = Outcome(label, point, [None] * count, error)
        if error is None:
            used += _fill(outcome, next(hashes), manifest, contents)
        outcomes.append(outcome)
    expected = count * sum(outcome.error is None for outcome in outcomes)
    merged = Merged(store.folder, manifest, contents, outcomes, expected, used, len(contents.records) - used)
    if manifest["study"] == "sweep" and used == expected and not contents.conflicts:
        write_atomically(store.folder / "table.csv", Sweep(manifest["paths"], outcomes, manifest["seed"]).to_csv())
    return merged


def _is_study(manifest: dict[str, Any]) -> bool:
    """Whether all that a study is read by is there, and fits together."""
    takes: dict[str, type | tuple[type, ...]] = {"study": str, "version": str, "seed": int, "replicas": (int, type(None))}
    if not all(isinstance(manifest.get(key), kind) for key, kind in takes.items()):
        return False
    lists = [manifest.get(key, []) for key in ("hashes", "points", "labels", "errors", "paths")]
    if not all(isinstance(found, list) for found in lists):
        return False
    hashes, points, labels, errors, paths = lists
    rows = len(points or labels or hashes)
    return (
        all(isinstance(point, dict) for point in points)
        and all(isinstance(text, str) for text in [*hashes, *labels, *paths])
        and {len(found) for found in (points, labels, errors) if found} <= {rows}
        and len(hashes) == rows - sum(error is not None for error in errors)
        and (manifest.get("replicas") or 1) > 0
    )


def _most_replicas(contents: Contents) -> int:
    return 1 + max((record.replica for record in contents.records.values()), default=0)


def _fill(outcome: Outcome, scenario_hash: str, manifest: dict[str, Any], contents: Contents) -> int:
    found = 0
    for replica in range(len(outcome.replicas)):
        key = record_key(scenario_hash, manifest["seed"], replica, manifest["version"])
        record = contents.records.get(key)
        if record is not None:
            outcome.replicas[replica] = record.metrics
            found += 1
    return found
