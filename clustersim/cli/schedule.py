"""`clustersim schedule list | export | check | evaluate`."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from clustersim.cli.options import Json, Quiet
from clustersim.cli.talk import say

if TYPE_CHECKING:
    from clustersim.pipeline.ops import Program
    from clustersim.pipeline.schedule import Schedule
    from clustersim.pipeline.traits import Description

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="List, export, check and evaluate pipeline schedules.",
)

Ranks = Annotated[int, typer.Option("--pp", min=1, help="Pipeline ranks.")]
Microbatches = Annotated[int, typer.Option("--microbatches", "-m", min=1, help="Microbatches a step.")]
Chunks = Annotated[
    int | None,
    typer.Option("--chunks", min=1, show_default=False, help="Chunks a rank; default: what the schedule takes."),
]
Slices = Annotated[int, typer.Option("--slices", min=1, help="Slices of each sequence.")]
Chains = Annotated[int, typer.Option("--chains", min=1, help="Independent pipelines that share the ranks.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", show_default=False, help="An option of the schedule. Repeatable."),
]
File = Annotated[
    str,
    typer.Argument(
        metavar="FILE", show_default=False, help="CSV, a row a rank, a cell an op (0F0, 0B0, …)."
    ),
]


@app.command("list")
def list_(json: Json = False) -> None:
    """All schedules: what they are, when they are defined, what they hold, their options."""
    from clustersim.cli.scenarios import import_plugins
    from clustersim.cli.talk import print_json
    from clustersim.pipeline.schedule import Schedule, schedule_names

    import_plugins()
    described = [_described(name) for name in schedule_names()]
    if json:
        print_json([{"name": item.kind, **asdict(item), "evidence": item.evidence} for item in described])
        return
    width = max(len(item.kind) for item in described)
    for item in described:
        say(f"{item.kind:<{width}}  {item.summary}")
        say(
            f"{'':<{width}}  defined for {item.defined}; chunks {item.chunks}; holds {item.in_flight_formula} · {item.evidence}"
        )
        own = {key: value for key, value in item.options.items() if key not in Schedule.model_fields}
        if own:
            say(f"{'':<{width}}  options: {_options(own)}")
    say(f"Options of all: {_options({key: described[0].options[key] for key in Schedule.model_fields})}")


def _described(name: str) -> Description:
    """What a schedule is; the op list of ``csv`` stands in a file, which has no default."""
    from clustersim.pipeline.schedule import get_schedule

    if name != "csv":
        return get_schedule(name).describe()
    described = get_schedule(name, file="my.csv").describe()
    return replace(described, options={**described.options, "file": None})


def _options(options: dict[str, Any]) -> str:
    """``extra_warm_up 0, fsdp false``: names with their defaults as YAML writes them; – where there is none."""
    return ", ".join(f"{key} {'–' if value is None else str(value).lower()}" for key, value in options.items())


@app.command()
def export(
    name: Annotated[
        str, typer.Argument(metavar="NAME", show_default=False, help="A schedule (clustersim schedule list).")
    ],
    pp: Ranks = 4,
    microbatches: Microbatches = 8,
    chunks: Chunks = None,
    slices: Slices = 1,
    options: Options = None,
    format_: Annotated[Literal["csv", "grid"], typer.Option("--format", help="csv, or text for the eye.")] = "csv",
    out: Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", show_default=False)] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the op lists of a schedule: a row a rank."""
    from clustersim.cli.talk import print_json
    from clustersim.pipeline.text import to_csv, to_grid

    made = _program(name, pp, microbatches, chunks, slices, options, quiet)
    text = to_csv(made) if format_ == "csv" else to_grid(made).rstrip("\n") + "\n"
    if json:
        print_json({"schedule": name, "stages": made.stages, "microbatches": made.microbatches, "slices": made.slices,
                    "ranks": [[str(action) for action in order] for order in made.ranks]})  # fmt: skip
    if out is None:
        if not json:
            say(text, end="")
        return
    from pathlib import Path

    from clustersim.report.files import write_output

    write_output(Path(out), text.encode())


@app.command()
def check(
    file: File,
    microbatches: Annotated[int | None, typer.Option("--microbatches", "-m", min=1, show_default=False)] = None,
    slices: Slices = 1,
    chains: Chains = 1,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME",
            show_default=False,
            help="How messages wait: buffered, stream, rendezvous; default: all three. Repeatable.",
        ),
    ] = None,
    eager_bytes: Annotated[
        float, typer.Option("--eager-bytes", min=0, help="Messages of at most this size never wait for their receive.")
    ] = 0.0,
    message_bytes: Annotated[
        float | None, typer.Option("--message-bytes", min=0, show_default=False, help="Size of each message.")
    ] = None,
    json: Json = False,
) -> None:
    """Every fault of an op list: work missing or doubled, wrong order, deadlocks, sends and receives that hang.

    Exit 1 if there are any, 3 for a deadlock.
    """
    from clustersim.cli.talk import print_json
    from clustersim.pipeline.check_comms import check_all
    from clustersim.pipeline.text import load_program

    program = load_program(file, microbatches=microbatches, slices=slices, chains=chains)
    size = float("inf") if message_bytes is None else message_bytes
    findings = check_all(program, _models(model), eager_bytes=eager_bytes, message_bytes=size)
    if json:
        print_json({"file": file, "ok": not findings, "findings": [asdict(finding) for finding in findings]})
    for finding in findings:
        say(f"{file}: {finding}", err=True)
    if not findings and not json:
        say(f"{file}: ok: {len(program.ranks)} ranks, {program.stages} stages, {program.microbatches} microbatches")
    if findings:
        raise typer.Exit(3 if any(finding.kind in ("cycle", "communication") for finding in findings) else 1)


def _models(names: list[str] | None) -> Any:
    """The communication models of ``--model``.

    Raises:
        InputError: for an unknown one.
    """
    from clustersim.errors import InputError, Problem, nearest

    known = ("buffered", "stream", "rendezvous")
    for name in names or ():
        if name not in known:
            raise InputError(Problem("--model", f"'{name}' is none of {', '.join(known)}{nearest(name, known)}"))
    return tuple(names) if names else known


@app.command()
def evaluate(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…", show_default=False, help="CSV op lists, or names of schedules; several are compared."
        ),
    ],
    costs: Annotated[
        str,
        typer.Option(
            "--costs", metavar="F=1,I=1,W=1", help="Time of a whole rank's share of a microbatch; B is I + W."
        ),
    ] = "F=1,I=1,W=1",
    latency: Annotated[float, typer.Option("--latency", min=0, help="Time of a message between ranks.")] = 0.0,
    pp: Ranks = 4,
    microbatches: Annotated[int | None, typer.Option("--microbatches", "-m", min=1, show_default=False)] = None,
    chunks: Chunks = None,
    slices: Slices = 1,
    chains: Chains = 1,
    options: Options = None,
    timeline: Annotated[
        str | None,
        typer.Option("--timeline", metavar="FILE", show_default=False, help="Draw it: .html, .png, .svg, .json."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Time an op list (a CSV file), or a schedule by name: makespan, bubbles, what is held, what is waited for."""
    from clustersim.cli.talk import Talk, print_json
    from clustersim.pipeline.evaluate import evaluate as measure
    from clustersim.pipeline.graph import compile as compiled
    from clustersim.pipeline.replay import replay

    if timeline is not None:
        from clustersim.report.timeline import require_ending

        require_ending(timeline)
    model = _costs(costs, latency)
    programs = [_read(file, pp, microbatches, chunks, slices, chains, options, quiet) for file in files]
    graphs = [compiled(program) for program in programs]
    lines = [replay(graph, model.durations(graph), model.delays(graph)) for graph in graphs]
    numbers = [measure(line) for line in lines]
    if json:
        print_json(
            numbers[0] if len(files) == 1 else [{"schedule": f, **n} for f, n in zip(files, numbers, strict=True)]
        )
    else:
        say("\n\n".join(_table(program, told) for program, told in zip(programs, numbers, strict=True)))
        if len(files) > 1:
            say("\n" + _differences(files, numbers))
    if timeline is not None:
        from clustersim.report.scene import View
        from clustersim.report.timeline import write_timeline

        views = [View(line, title=file, time_unit="") for line, file in zip(lines, files, strict=True)]
        write_timeline(timeline, views, title=" against ".join(files))
        Talk(quiet).remark(f"wrote {timeline}")


def _read(
    file: str,
    pp: int,
    microbatches: int | None,
    chunks: int | None,
    slices: int,
    chains: int,
    options: list[str] | None,
    quiet: bool,
) -> Program:
    """The op list of a schedule's name or of a CSV file."""
    if _is_name(file):
        return _program(file, pp, microbatches or 8, chunks, slices, options, quiet)
    from pathlib import Path

    from clustersim.pipeline.schedule import known_schedule
    from clustersim.pipeline.text import load_program

    if file != "csv" and not Path(file).suffix and not Path(file).exists():
        known_schedule(file)  # a name that is misspelt rather than a file's
    return load_program(file, microbatches=microbatches, slices=slices, chains=chains)


def _differences(names: list[str], numbers: list[dict[str, Any]]) -> str:
    """Each op list against the first."""
    from clustersim.report.study_text import table

    first = numbers[0]
    rows = [
        [
            name,
            f"{told['makespan']:g}",
            f"{told['makespan'] / first['makespan'] - 1:+.2%}",
            f"{told['bubble']['step']:.2%}",
            f"{max(told['peak_in_flight_microbatches']):g}",
            f"{told['messages']}",
        ]
        for name, told in zip(names, numbers, strict=True)
    ]
    return table(["schedule", "makespan", "against the first", "bubble of step", "held", "messages"], rows)


def _is_name(text: str) -> bool:
    from clustersim.cli.scenarios import import_plugins
    from clustersim.pipeline.schedule import Schedule

    import_plugins()
    return text in Schedule.kinds and text != "csv"


def _program(
    name: str, pp: int, microbatches: int, chunks: int | None, slices: int, options: list[str] | None, quiet: bool
) -> Program:
    from clustersim.cli.talk import Talk
    from clustersim.errors import InputError, Problem
    from clustersim.pipeline.schedule import MOST_UNITS, Pipeline

    schedule = _schedule(name, options)
    pipe = Pipeline(pp, microbatches, chunks or schedule.default_chunks(), slices)
    if (units := math.prod(pipe[:3]) * max(slices, schedule.slices_for(pp))) > MOST_UNITS:
        told = f"pp × microbatches × chunks × slices = {units:,} is more than {MOST_UNITS:,}, which no step is replayed with"
        raise InputError(Problem(name, told))
    made = schedule.program(pipe)
    for note in schedule.notes(pipe):
        Talk(quiet).remark(f"{name}: {note}")
    return made


def _schedule(name: str, options: list[str] | None) -> Schedule:
    """The schedule called ``name`` with its ``--set`` options, errors as in a scenario."""
    from pydantic import TypeAdapter, ValidationError

    from clustersim.cli.scenarios import import_plugins
    from clustersim.errors import InputError
    from clustersim.pipeline.schedule import Schedule, known_schedule
    from clustersim.scenario.override import apply_override
    from clustersim.scenario.problems import problems_of
    from clustersim.scenario.tree import Place, from_plain

    import_plugins()
    known_schedule(name)
    tree = from_plain({"kind": name}, Place(None))
    for text in options or ():
        tree, problems = apply_override(tree, text)
        if problems:
            raise InputError(problems)
    try:
        built: Schedule = TypeAdapter(Schedule).validate_python(tree.plain())
    except ValidationError as error:
        raise InputError(problems_of(error.errors(include_url=False), tree)) from None
    return built


def _costs(text: str, latency: float) -> Any:
    from clustersim.errors import InputError, Problem
    from clustersim.pipeline.costs import Costs
    from clustersim.pipeline.ops import Kind

    wrong = Problem("--costs", f"'{text}' needs the form F=1,I=1,W=1 with times of at least 0; ops: F, I, W, B, R")
    times: dict[Kind, float] = {Kind.F: 1.0, Kind.I: 1.0, Kind.W: 1.0}
    for term in filter(None, text.split(",")):
        name, _, number = term.partition("=")
        try:
            times[Kind(name.strip())] = value = float(number)
        except ValueError:
            raise InputError(wrong) from None
        if not (value >= 0 and math.isfinite(value)):
            raise InputError(wrong)
    return Costs(times, share=True, latency=latency)


def _table(program: Program, numbers: dict[str, Any]) -> str:
    def share(value: float | None) -> str:
        return "undefined" if value is None else f"{value:.2%}"

    bubble = numbers["bubble"]
    idle = {name: value for name, value in numbers["idle_by_cause"].items() if value}
    lines = [
        f"{program.name or 'op list'}: {len(program.ranks)} ranks, {program.stages} stages, "
        f"{program.microbatches} microbatches",
        f"  makespan   {numbers['makespan']:g}",
        f"  bubble     {share(bubble['step'])} of the step; {share(bubble['span'])} of the longest rank span; "
        f"{share(bubble['work'])} of work",
        f"  held       at most {max(numbers['peak_in_flight_microbatches']):g} microbatches on a rank",
        f"  messages   {numbers['messages']}",
        f"  idle       {', '.join(f'{name} {value:g}' for name, value in idle.items()) or 'none'} (summed over ranks)",
    ]
    return "\n".join(lines)
