"""``clustersim plan``: search layouts, then rank designs by the tokens that are left after failures."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clustersim.cli.options import (
    Address,
    ExecutorName,
    Json,
    OutDir,
    Quiet,
    Replicas,
    ScenarioFile,
    Seed,
    Set,
    Workers,
)
from clustersim.cli.resuming import ROUND, resumable
from clustersim.cli.study_options import executor_of
from clustersim.cli.talk import Talk, print_json, say, to_json
from clustersim.errors import InputError, Problem, nearest

if TYPE_CHECKING:
    from clustersim.pipeline.search_space import Space
    from clustersim.study.planning import Plan
    from clustersim.study.store import Store

SpaceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--space",
        metavar="KEY=VALUES",
        show_default=False,
        help="Values that the search may take: tp=4,8 schedules=1f1b,zb-v micro_batch=1,2 … Repeatable.",
    ),
]
Over = Annotated[
    list[str] | None,
    typer.Option(
        "--over",
        metavar="PATH=VALUES",
        show_default=False,
        help="Choices of the run; default: checkpoint intervals around the best by formula.",
    ),
]


def command(
    scenario: ScenarioFile,
    space: SpaceOption = None,
    over: Over = None,
    layouts: Annotated[int, typer.Option("--layouts", min=1, help="Best steps that are taken on to the run.")] = 8,
    gpu_hour: Annotated[float | None, typer.Option("--gpu-hour", min=0, help="Price of a GPU-hour.")] = None,
    kwh: Annotated[float | None, typer.Option("--kwh", min=0, help="Price of a kilowatt-hour.")] = None,
    pue: Annotated[float, typer.Option("--pue", min=1, help="Power of the site ÷ power of the GPUs.")] = 1.5,
    sets: Set = None,
    seed: Seed = None,
    replicas: Replicas = None,
    workers: Workers = None,
    executor: ExecutorName = None,
    address: Address = None,
    out: OutDir = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search layout, schedule, microbatch, recompute and checkpoint interval; rank by tokens kept a day."""
    from clustersim.cli.scenarios import load_one
    from clustersim.report.documents import study_cautions
    from clustersim.study.axes import parse_axis
    from clustersim.study.planning import Prices, plan

    base = load_one(scenario, sets)
    choices = dict(parse_axis(text) for text in over) if over else None
    prices = Prices(gpu_hour, kwh, base.cluster.node.gpu.power * pue)
    talk = Talk(quiet)
    searched = ["parallelism", "training.micro_batch", "training.recompute"]
    talk.warn(study_cautions(base, [*searched, *(choices or ["checkpoint.interval"])]))
    talk.remark("searching layouts …")
    free = _space(space or [])
    place, store = executor_of(executor, workers, address), _store(out)
    with resumable(out, ROUND) as kept, store or nullcontext(), talk.progress("replicas") as progress:
        found = plan(base, space=free, over=choices, layouts=layouts, replicas=replicas or 32, seed=seed, prices=prices,
                     store=store, executor=place, progress=kept.counting(progress))  # fmt: skip
    if out is not None:
        _write(Path(out), found, base.name)
        talk.remark(f"written to {out}; next: clustersim run {Path(out) / 'best.yaml'}")
    if json:
        print_json(found.to_dict())
    else:
        from clustersim.report.study_text import plan_text

        say(plan_text(found))


def _store(out: str | None) -> Store | None:
    """The folder's records: those of any plan, since each is kept under what it is of."""
    if out is None:
        return None
    from clustersim.study.store import PLAN, Store

    store = Store(out)
    if any(store.folder.glob("*.json*")):  # what is no plan's is refused before the search
        store.open_study(PLAN)
    return store


def _space(texts: list[str]) -> Space:
    """The search space of ``--space`` options.

    Raises:
        InputError: an unknown key or a value of the wrong kind.
    """
    from pydantic import ValidationError

    from clustersim.pipeline.search_space import Space
    from clustersim.study.axes import parse_axis

    data: dict[str, Any] = {}
    for text in texts:
        key, values = parse_axis(text, "--space")
        if key not in Space.model_fields:
            known = sorted(Space.model_fields)
            raise InputError(Problem(f"--space {key}", f"is none of {', '.join(known)}{nearest(key, known)}"))
        data[key] = values[0] if key == "gpus" else values
    try:
        return Space.model_validate(data)
    except ValidationError as error:
        from clustersim.scenario.problems import sentence_of

        raise InputError([Problem(f"--space {'.'.join(str(part) for part in detail['loc'])}", sentence_of(detail))
                          for detail in error.errors()]) from None  # fmt: skip


def _write(folder: Path, found: Plan, name: str) -> None:
    from clustersim.report.plan_figure import plan_figure
    from clustersim.report.plan_page import plan_page
    from clustersim.study.store import write_atomically

    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "best.yaml", found.scenario().replace("name", f"{name}-best").resolved())
    write_atomically(folder / "plan.json", to_json(found.to_dict()) + "\n")
    write_atomically(folder / "plan.csv", found.to_frame().to_csv(index=False, lineterminator="\n"))
    plan_figure(found, folder / "plan.png")
    write_atomically(folder / "report.html", plan_page(found, f"{name}: plan"))
