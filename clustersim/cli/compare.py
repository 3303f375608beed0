"""``clustersim compare``: the same failures for each design, and which is better."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersim.cli.options import (
    Address,
    ExecutorName,
    Json,
    OutDir,
    Quiet,
    Replicas,
    Scenarios,
    Seed,
    Set,
    Verbose,
    Workers,
)
from clustersim.cli.resuming import ROUND, resumable
from clustersim.cli.study_options import Limit, Until, executor_of, target_of
from clustersim.cli.talk import Talk, print_json, say, to_json
from clustersim.errors import InputError, NegativeAnswer, Problem

if TYPE_CHECKING:
    from clustersim.study.comparison import Comparison


def command(
    scenarios: Scenarios,
    sets: Set = None,
    seed: Seed = None,
    replicas: Replicas = None,
    until: Until = None,
    limit: Limit = 2000,
    workers: Workers = None,
    executor: ExecutorName = None,
    address: Address = None,
    out: OutDir = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Run each scenario on the same failures; say which is better, or that the data do not decide."""
    from clustersim.cli.scenarios import load_all
    from clustersim.report.documents import checkpoint_document, recovery_document, study_cautions
    from clustersim.study.comparison import compare
    from clustersim.study.replicas import refuse_unready

    if len(scenarios) < 2:
        raise InputError(Problem("SCENARIO", "compare needs at least two scenarios"))
    talk = Talk(quiet, verbose)
    place, target = executor_of(executor, workers, address), target_of(until)
    loaded = load_all(scenarios, sets)
    refuse_unready(loaded)
    store = _store(out, loaded, seed)
    talk.warn(sentence for scenario in loaded for sentence in study_cautions(scenario))
    counted = "replicas" if target is None else ROUND
    with resumable(out, counted) as kept, store or nullcontext(), talk.progress("replicas") as progress:
        found = compare(loaded, names=_names(scenarios, loaded), replicas=replicas, seed=seed, until=target, limit=limit,
                        executor=place, store=store, progress=kept.counting(progress))  # fmt: skip
    if store is not None:
        _write(Path(store.folder), found, loaded)
        talk.remark(f"written to {out}")
    recovery = [recovery_document(scenario) if outcome.error is None else None
                for scenario, outcome in zip(loaded, found.outcomes, strict=True)]  # fmt: skip
    saving = [checkpoint_document(scenario) if outcome.error is None else None
              for scenario, outcome in zip(loaded, found.outcomes, strict=True)]  # fmt: skip
    if json:
        print_json({**found.to_dict(), "recovery": recovery, "checkpoint": saving})
    else:
        _tell(found, loaded, recovery, saving)
    failed = [outcome.label for outcome in found.outcomes if outcome.error is not None]
    if failed:
        raise NegativeAnswer(f"not simulated: {', '.join(failed)}")


def _tell(found: Comparison, loaded: list[Any], recovery: list[Any], saving: list[Any]) -> None:
    """Print the answer; ways to save and to come back where the scenarios differ in them."""
    from clustersim.report.engines import differ_in_saving, engines_text
    from clustersim.report.study_text import comparison_text
    from clustersim.report.ways_back import strategies_text

    say(comparison_text(found))
    document = found.to_dict()
    if differ_in_saving(loaded):
        say(f"\n{engines_text(document['scenarios'], saving)}")
    back = strategies_text(document["scenarios"], recovery, document["runs"])
    if back:
        say(f"\n{back}")


def _names(files: list[str], loaded: list[Any]) -> list[str]:
    """Scenario names where they differ, else file names."""
    names = [scenario.name for scenario in loaded]
    return names if len(set(names)) == len(names) else [Path(file).stem for file in files]


def _store(out: str | None, loaded: list[Any], seed: int | None) -> Any:
    if out is None:
        return None
    from clustersim import __version__
    from clustersim.study.runner import job_of
    from clustersim.study.store import Store

    store = Store(out)
    store.open_study({"study": "compare", "version": __version__,
                      "seed": loaded[0].simulation.seed if seed is None else seed,
                      "labels": [scenario.name for scenario in loaded],
                      "hashes": [job_of("", scenario).hash for scenario in loaded]})  # fmt: skip
    return store


def _write(folder: Path, found: Comparison, scenarios: list[Any]) -> None:
    from clustersim.report.compare_page import comparison_page
    from clustersim.study.store import write_atomically

    frame = found.to_frame()
    write_atomically(folder / "differences.csv", frame.to_csv(index=False, lineterminator="\n"))
    write_atomically(folder / "compare.json", to_json(found.to_dict()) + "\n")
    write_atomically(folder / "report.html", comparison_page(found, scenarios))
