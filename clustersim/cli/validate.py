"""`clustersim validate`."""

from __future__ import annotations

from typing import Annotated

import typer

from clustersim.cli.options import Json, OutDir, Quiet, Verbose
from clustersim.cli.talk import say

Suites = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SUITE… or FILE.csv…]", help="Names of suites, or tables of your own runs; default: all suites.",
                   show_default=False),
]  # fmt: skip


def command(
    suites: Suites = None,
    json: Json = False,
    out: OutDir = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    all_rows: Annotated[
        bool, typer.Option("--rows", help="Every row, not only the worst three of each suite.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Only list the suites and their bounds.")] = False,
    assumed: Annotated[
        bool, typer.Option("--assumed", help="Also what was assumed for blank cells, row by row.")
    ] = False,
) -> None:
    """Compare predictions with published measurements, or with your own. Ends with 1 where a suite is over its bound,
    or has no row that can be compared.

    ``reliability`` replays published cases of failures, checkpoints and recovery.
    """
    if suites == ["reliability"] and not list_:
        _reliability(json, out, quiet, verbose, all_rows)
        return
    from clustersim.cli.talk import Talk, print_json
    from clustersim.validation.report import chosen_suites, run

    talk = Talk(quiet, verbose)
    picked = chosen_suites(suites or [])
    if list_ and json:
        print_json([{"name": suite.name, "median_bound_pct": suite.bound.median, "about": suite.about} for suite in picked])
    elif list_:
        for suite in picked:
            bound = f"{suite.bound.median:g} %" if suite.bound.median is not None else "–"
            say(f"{suite.name:<24}{bound:>6}  {suite.about}")
    if list_:
        return
    with talk.progress("validate") as told:
        report = run(picked, told)
    if json:
        print_json(report.dump())
    else:
        for line in [*report.summary(), "", *report.details(None if all_rows else 3)]:
            say(line)
        if assumed:
            _print_assumed(report)
    if out:
        _write(report, out, talk)
    wrong = [*report.nothing, *report.over]
    for sentence in wrong:
        say(sentence, err=True)
    if wrong:
        raise typer.Exit(1)


def _reliability(json: bool, out: str | None, quiet: bool, verbose: int, all_rows: bool) -> None:
    """Published cases of failures and recovery: the table, the JSON document, a figure."""
    from pathlib import Path

    from clustersim.cli.talk import Talk, print_json, to_json
    from clustersim.validation import reliability
    from clustersim.validation.reliability_case import Case

    talk = Talk(quiet, verbose)
    rows: list[Case] = []
    with talk.progress("validate") as told:
        for done, group in enumerate(reliability.GROUPS, start=1):
            rows += group()
            if told is not None:
                told(done, len(reliability.GROUPS))
    if json:
        print_json(reliability.dump(rows))
    else:
        for line in reliability.table(rows, all_rows):
            say(line)
    if out:
        from clustersim.validation.reliability_figure import save_figure

        target = Path(out)
        target.mkdir(parents=True, exist_ok=True)
        (target / "reliability.json").write_text(to_json(reliability.dump(rows)) + "\n", encoding="utf-8")
        save_figure(rows, target / "reliability.png")
        talk.remark(f"{out}: reliability.json, reliability.png")
    wrong = reliability.failed(rows)
    for row in wrong:
        say(f"reliability: {row.suite}, {row.case}: {row.ours:.5g} where {row.published:.5g} was published", err=True)
    if wrong:
        raise typer.Exit(1)


def _print_assumed(report: object) -> None:
    from clustersim.validation.report import Report

    assert isinstance(report, Report)
    for suite in report.suites:
        for result in suite.results:
            notes = "; ".join(f"{key}: {text}" for key, text in result.assumed.items())
            say(f"{suite.name} {result.row_id}: {notes or result.skipped or 'nothing assumed'}")


def _write(report: object, folder: str, talk: object) -> None:
    """Figures, the JSON document and the page with all errors, into a folder."""
    from pathlib import Path

    from clustersim.cli.talk import Talk, to_json
    from clustersim.validation.figure import save_figures
    from clustersim.validation.page import page
    from clustersim.validation.report import Report

    assert isinstance(report, Report)
    assert isinstance(talk, Talk)
    written = save_figures(report.suites, folder)
    target = Path(folder)
    (target / "validation.json").write_text(to_json(report.dump()) + "\n", encoding="utf-8")
    (target / "validation.md").write_text(page(report), encoding="utf-8")
    talk.remark(f"{folder}: {len(written)} figures, validation.json, validation.md")
