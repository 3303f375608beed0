"""A part of a plug-in that raises, or answers what cannot be, is named; the program ends with 2 and without a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.blame import plugin_error
from clustersim.cli.main import guarded

PARTS = '''
from clustersim.checkpoint.engine import CheckpointEngine
from clustersim.distributions import Distribution
from clustersim.recovery.strategy import RecoveryStrategy, Restart


class Raises(Restart, kind="raises-when-asked"):
    """Raises."""

    def comeback(self, cause, job):
        return {}["no such key"]


class Silent(RecoveryStrategy, kind="answers-nothing"):
    """Answers nothing."""

    def comeback(self, cause, job):
        return None


class Negative(Restart, kind="gives-time-back"):
    """Makes steps shorter."""

    def overhead_s(self, ground):
        return -1.0


class NoDisk(CheckpointEngine, kind="raises-at-once"):
    """Raises before the run."""

    def save(self, site):
        raise RuntimeError("no disk")


class Undefined(Distribution, kind="draws-nan"):
    """Draws no durations."""

    def draw(self, rng, size):
        return [float("nan")] * size

    def mean_s(self):
        return 1.0
'''
CASES = [
    ("recovery.strategy=raises-when-asked", "Raises.comeback (recovery strategy 'raises-when-asked') raised KeyError: 'no such key'"),
    ("recovery.strategy=answers-nothing", "Silent (recovery strategy 'answers-nothing') answered what cannot be: TypeError: "
                                          "Silent.comeback must return a Comeback, not None"),
    ("recovery.strategy=gives-time-back", "Negative.overhead_s must return seconds, 0 or more, not -1.0"),
    ("checkpoint.engine=raises-at-once", "NoDisk.save (checkpoint engine 'raises-at-once') raised RuntimeError: no disk"),
    ("repair.time={kind: draws-nan}", "Undefined (distribution 'draws-nan') answered what cannot be"),
]  # fmt: skip


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("parts")
    (folder / "parts_that_fail.py").write_text(PARTS)
    base = Path(__file__).parents[2] / "scenarios" / "8-gpus-8b.yaml"
    text = f"extends: [{base}]\nplugins: [parts_that_fail]\ncluster: {{spare_nodes: 1}}\n"
    (folder / "job.yaml").write_text(text + "failures: [{name: a, component: node, mtbf: 12 h, severity: node}]\n")
    return str(folder / "job.yaml")


@pytest.mark.parametrize(("change", "told"), CASES)
def test_run_names_class_and_method(change: str, told: str, job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["run", job, "--set", change, "--replicas", "1"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "parts_that_fail.py" in lines[0]
    assert told in lines[0]


def test_the_traceback_comes_with_verbose(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(["run", job, "--set", CASES[0][0], "--replicas", "1", "-v"]) == 2
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert told.splitlines()[-1].endswith(CASES[0][1])


def test_worker_processes_say_the_same(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["run", job, "--set", CASES[0][0], "--replicas", "2", "--executor", "processes", "--workers", "2"]
    assert guarded(asked) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(CASES[0][1])


def test_a_study_goes_on_with_the_others(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    other = str(Path(job).with_name("other.yaml"))
    Path(other).write_text("extends: [job.yaml]\nname: other\nrecovery: {strategy: raises-when-asked}\n")
    assert guarded(["compare", job, other, "--replicas", "2", "--workers", "1"]) == 1
    told = capsys.readouterr()
    assert CASES[0][1] in " ".join((told.out + told.err).split())


def test_a_fault_of_the_package_is_not_blamed_on_a_plugin() -> None:
    try:
        Path("x").joinpath(None)  # type: ignore[arg-type]
    except TypeError as error:
        assert plugin_error(error) is None
