"""``clustersim fit``: models from measurements; ``fit failures`` turns an incident log into a block that runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clustersim.cli.fit_profile import command as profile_command
from clustersim.cli.options import Json, OutDir, Quiet
from clustersim.cli.talk import Talk, print_json, say
from clustersim.errors import InputError, Problem
from clustersim.units import DURATION

if TYPE_CHECKING:
    from clustersim.faults.fit.log import FaultLog
    from clustersim.faults.fit.model import FittedFailures

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True,
                  help="Fit models to measurements: failures from an incident log, a profile from real hardware.")  # fmt: skip

LogFile = Annotated[
    str, typer.Argument(metavar="FILE.csv", help="Columns node, start, end, class; or pipe-separated sacct output.")
]
Nodes = Annotated[int | None, typer.Option("--nodes", min=1, show_default=False,
                                           help="Nodes that were watched, those without a fault included.")]  # fmt: skip
Window = Annotated[str | None, typer.Option("--window", metavar="DURATION", show_default=False,
                                            help="Length of the log ('349 d'); default: up to its last time.")]  # fmt: skip
Constant = Annotated[bool, typer.Option("--constant", help="One rate for the whole time: no calendar.")]
Check = Annotated[
    int, typer.Option("--replicas", min=0, help="Logs to simulate with the fitted model, to hold against the real one.")
]


app.command("profile")(profile_command)


@app.command()
def failures(file: LogFile, nodes: Nodes = None, window: Window = None, constant: Constant = False, replicas: Check = 50,
             out: OutDir = None, json: Json = False, quiet: Quiet = False) -> None:  # fmt: skip
    """A failure model from an incident log: censoring respected, families compared, lemons and clusters found.

    Prints a ``failures:`` block that runs; -o DIR also writes it with the report and the pictures.
    """
    from clustersim.faults.fit.log import read_log
    from clustersim.faults.fit.model import fit_failures

    talk = Talk(quiet, 0)
    log = read_log(Path(file), population=nodes, window_s=None if window is None else _seconds(window))
    if nodes is None:
        talk.remark(f"taking the {log.population} nodes that the log names as all that were watched (or say --nodes)")
    try:
        fitted = fit_failures(log, calendar=not constant)
    except ValueError as error:
        raise InputError(Problem("", str(error), file=file)) from None
    simulated = fitted.simulate(replicas)
    document = {**fitted.report(), "check": check(fitted, simulated), "block": fitted.data()}
    if out is not None:
        _write(Path(out), fitted, simulated, document)
    if json:
        print_json(document)
    else:
        say(summary(fitted, document["check"]))
        say(fitted.yaml(), end="")


def _seconds(text: str) -> float:
    try:
        return DURATION.parse(text)
    except ValueError as error:
        raise InputError(Problem("--window", str(error))) from None


def check(fitted: FittedFailures, simulated: list[FaultLog]) -> dict[str, dict[str, float | None]]:
    """Each figure of the log beside the median and the 90 % range of the simulated logs."""
    import numpy as np

    from clustersim.faults.fit.describe import describe

    rows = [describe(log).row() for log in simulated]
    found: dict[str, dict[str, float | None]] = {}
    for key, value in fitted.description.row().items():
        values = [float(row[key]) for row in rows if row[key] is not None]  # type: ignore[arg-type]
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95]).tolist() if values else (None, None, None)
        found[key] = {"log": value, "model_p05": low, "model_median": middle, "model_p95": high}
    return found


def summary(fitted: FittedFailures, checked: dict[str, dict[str, float | None]]) -> str:
    """What was found, in 80 columns, as comments of the YAML block that follows."""
    lines = [f"{'':27}{'log':>10} {'model: median':>14} {'5 %':>9} {'95 %':>9}"]
    for key, row in checked.items():
        values = [row["log"], row["model_median"], row["model_p05"], row["model_p95"]]
        shown = ["-" if value is None else f"{value:.4g}" for value in values]
        lines.append(f"{key:27}{shown[0]:>10} {shown[1]:>14} {shown[2]:>9} {shown[3]:>9}")
    for title, fits in (("down times", fitted.repairs.overall), ("up time from repair to next fault", fitted.refaults),
                        ("gaps between faults of the fleet", fitted.fleet_gaps)):  # fmt: skip
        lines += ["", f"{title}: {'family':12}{'AIC':>10} {'KS':>6}  parameters (95 % interval)"[:80]]
        for fit in fits:
            shown_values = ", ".join(f"{name} {value:.4g} ({low:.4g}–{high:.4g})" for name, value, (low, high)
                                     in zip(fit.family.parameters, fit.values, fit.intervals, strict=True))  # fmt: skip
            lines.append(f"  {fit.family.name:12}{fit.aic:10.1f} {fit.ks:6.3f}  {shown_values}")
    lines += ["", "lemons (faults, chance of so many on the worst of equal nodes): "]
    lines += [f"  {node}: {number} ({chance:.2g})" for node, number, chance in fitted.lemons[:5]]
    lines.append(f"a constant rate would be so uneven with probability {fitted.constant_rate_p:.2g}")
    return "\n".join(f"# {line}".rstrip() for line in lines) + "\n"


def _write(folder: Path, fitted: FittedFailures, simulated: list[FaultLog], document: object) -> None:
    """``failures.yaml``, ``fit.json``, ``fit.png``; each appears whole or not at all."""
    from clustersim.cli.talk import to_json
    from clustersim.faults.fit.plots import figure

    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("failures.yaml", fitted.yaml()), ("fit.json", to_json(document) + "\n")):
        part = folder / f".{name}.part"
        part.write_text(text, encoding="utf-8")
        os.replace(part, folder / name)
    part = folder / ".fit.part.png"
    figure(fitted, simulated).savefig(part, dpi=110)
    os.replace(part, folder / "fit.png")


__all__ = ["app"]
