"""`clustersim run`."""

from __future__ import annotations

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
    Scenarios,
    Seed,
    Set,
    Verbose,
    Workers,
)
from clustersim.cli.talk import Talk, say

if TYPE_CHECKING:
    from clustersim.report.folder import ResultFolder
    from clustersim.report.summary import Answer
    from clustersim.scenario.schema import Scenario


def command(
    scenarios: Scenarios,
    set_: Set = None,
    out: OutDir = None,
    json: Json = False,
    seed: Seed = None,
    replicas: Replicas = None,
    workers: Workers = None,
    executor: ExecutorName = None,
    address: Address = None,
    trace: Annotated[
        str | None,
        typer.Option("--trace", metavar="FILE.json", show_default=False, help="Also write replica 0 for ui.perfetto.dev."),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Simulate a whole training run, several times: how much useful training, and where the rest of the time goes."""
    from clustersim.cli.scenarios import load_all
    from clustersim.cli.talk import print_json
    from clustersim.report.summary import run_summary
    from clustersim.study.replicas import refuse_unready

    talk = Talk(quiet, verbose)
    loaded = load_all(scenarios, set_)
    if len(loaded) > 1:
        refuse_unready(loaded)
    runner = _Runner(talk, seed, replicas, workers, executor, address)
    answers: list[Answer] = []
    for scenario in loaded:
        answers.append(runner.answer(scenario, _folder_of(out, scenario, loaded)))
        if not json:
            say(("\n" if len(answers) > 1 else "") + run_summary(answers[-1]))
        if answers[-1].interrupted:
            break
    if json:
        documents = [answer.document for answer in answers]
        print_json(documents if len(loaded) > 1 else documents[0])
        talk.warn(sentence for document in documents for sentence in document["step"]["warnings"] + document["warnings"])
    if trace is not None:
        from clustersim.report.run_trace import write_run_trace

        talk.remark(f"wrote {write_run_trace(trace, loaded[0], seed)}")
    _end(answers, talk)


def _folder_of(out: str | None, scenario: Scenario, loaded: list[Scenario]) -> str | None:
    """The output folder itself, or one a scenario in it."""
    if out is None or len(loaded) == 1:
        return out
    index = next(i for i, other in enumerate(loaded) if other is scenario)
    names = [_folder_name(other.name) for other in loaded]
    twice = names.count(names[index]) > 1
    return str(Path(out) / (f"{names[index]}-{index}" if twice else names[index]))


def _folder_name(name: str) -> str:
    """A scenario's name as a folder's: letters, digits and ``-_.``, at most 60 (a file system allows 255 bytes)."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name[:60])
    return safe.lstrip(".") or "scenario"


class _Runner:
    """Runs scenarios as the options ask."""

    def __init__(self, talk: Talk, seed: int | None, replicas: int | None, workers: int | None, executor: str | None,
                 address: str | None) -> None:  # fmt: skip
        self.talk, self.seed, self.replicas, self.workers = talk, seed, replicas, workers
        self.executor = _executor(executor, workers, address)

    def answer(self, scenario: Scenario, out: str | None) -> Answer:
        """The step, then all replicas; files too when ``out`` names a folder."""
        from clustersim.study.step import fitting_step

        step = fitting_step(scenario).to_dict()
        if out is None:
            return self._run(scenario, step, None)
        from clustersim.report.folder import ResultFolder

        with ResultFolder(out) as folder:
            answer = self._run(scenario, step, folder)
            if answer.document["replicas"]:
                self.talk.remark(f"wrote {folder.finish(answer)}/report.html")
            return answer

    def _run(self, scenario: Scenario, step: dict[str, Any], folder: ResultFolder | None) -> Answer:
        import time

        from clustersim.report.documents import run_document
        from clustersim.report.summary import Answer
        from clustersim.study.replicas import run_replicas

        start = time.perf_counter()
        with self.talk.progress(scenario.name) as progress:
            table = run_replicas(
                scenario, seed=self.seed, replicas=self.replicas, workers=self.workers, executor=self.executor,
                progress=progress, on_result=folder.add if folder is not None else None,
            )  # fmt: skip
        spent = time.perf_counter() - start
        if table.interrupted and not table.replicas:
            raise KeyboardInterrupt
        days = sum(table.columns["wall_s"]) / 86400
        self.talk.detail(
            f"{table.replicas} replicas in {spent:.2f} s: {days / max(spent, 1e-9):,.0f} simulated days a second"
        )
        return Answer(scenario, run_document(scenario, step, table), table.interrupted)


def _executor(name: str | None, workers: int | None, address: str | None) -> Any:
    if name is None and address is None:
        return None
    from clustersim.study.executors import executor
    from clustersim.study.replicas import affordable

    return executor(name or "auto", workers=affordable(workers), address=address)


def _end(answers: list[Answer], talk: Talk) -> None:
    """Exit 130 after Ctrl-C, 1 where a run was given up before its steps or tokens."""
    if any(answer.interrupted for answer in answers):
        talk.remark("interrupted; the replicas that were finished are kept")
        raise typer.Exit(130)
    given_up = [answer for answer in answers if answer.document["given_up"]]
    for answer in given_up:
        talk.remark(
            f"{answer.scenario.name}: {answer.document['given_up']} of {answer.document['replicas']} replicas were given up"
        )
    if given_up:
        raise typer.Exit(1)
