"""What only a process of its own shows: start-up, lazy imports, signals, broken pipes, full disks, kill -9."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HEAVY = ("pandas", "scipy", "matplotlib", "numba", "dask", "distributed", "pyarrow", "torch", "simpy", "numpy", "ruamel", "pydantic_core")
PYTHON = [sys.executable, "-W", "error"]
MODULE = [*PYTHON, "-m", "clustersim"]


def loaded_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after ``code``."""
    text = f"import sys\n{code}\nprint(' '.join(sorted({{name.split('.')[0] for name in sys.modules}})))"
    out = subprocess.run([*PYTHON, "-c", text], capture_output=True, text=True, check=True).stdout
    return set(out.splitlines()[-1].split())


class TestStart:
    def test_import_loads_next_to_nothing(self) -> None:
        assert not loaded_after("import clustersim") & {*HEAVY, "typer", "rich"}

    def test_help_loads_no_library_of_the_models(self) -> None:
        """typer brings pydantic; nothing else of weight may come."""
        code = "from clustersim.cli.main import guarded\nassert guarded(['--help']) == 0"
        assert not loaded_after(code) & (set(HEAVY) - {"pydantic_core"})

    @pytest.mark.parametrize("arguments", [["run", "-h"], ["step", "-h"], ["check", "-h"], ["list", "-h"], ["schedule", "-h"]])
    def test_help_of_a_command_too(self, arguments: list[str]) -> None:
        code = f"from clustersim.cli.main import guarded\nassert guarded({arguments}) == 0"
        assert not loaded_after(code) & (set(HEAVY) - {"pydantic_core"})

    def test_check_needs_no_pandas(self, small: str) -> None:
        code = f"from clustersim.cli.main import guarded\nassert guarded(['check', '{small}']) == 0"
        assert not loaded_after(code) & {"pandas", "matplotlib", "dask", "distributed", "pyarrow", "torch", "simpy"}

    def test_run_without_files_needs_no_pandas(self, small: str) -> None:
        code = f"from clustersim.cli.main import guarded\nassert guarded(['run', '{small}', '--json']) == 0"
        assert not loaded_after(code) & {"pandas", "matplotlib", "dask", "distributed", "pyarrow", "torch"}

    def test_python_dash_m(self) -> None:
        assert subprocess.run([*MODULE, "--version"], capture_output=True, text=True, check=True).stdout.startswith("clustersim ")


@pytest.mark.parametrize(("closed", "answers"), [("0<&-", True), ("1>&-", False), ("2>&-", True), ("0<&- 1>&- 2>&-", False)])
def test_streams_that_are_closed(closed: str, answers: bool, small: str) -> None:
    """As a daemon may start it. What is meant for standard error never comes out at standard output."""
    text = f"exec '{sys.executable}' -m clustersim run '{small}' -o out --json {closed}"
    ran = subprocess.run(["sh", "-c", text], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr.replace("wrote out/report.html\n", "")) == (0, "")
    assert json.loads(ran.stdout)["replicas"] if answers else not ran.stdout
    assert Path("out/summary.json").exists()


def test_closed_standard_input_holds_no_scenario() -> None:
    ran = subprocess.run(["sh", "-c", f"exec '{sys.executable}' -m clustersim check - <&-"], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr.split(";")[0]) == (2, "<stdin>: the file is empty")


def test_a_reader_that_leaves_early(small: str) -> None:
    """`clustersim list models | head -1`: one sentence, no traceback."""
    writer = subprocess.Popen([*MODULE, "list", "models", "-v"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.readline()
    writer.stdout.close()
    errors = writer.stderr.read()
    writer.stderr.close()
    assert writer.wait() == 1
    assert errors == "clustersim: the reader of the output closed it early\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk(small: str) -> None:
    with open("/dev/full", "w") as full:
        ran = subprocess.run([*MODULE, "step", small, "--json"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 1
    assert "the disk is full" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_standard_input(small: str) -> None:
    ran = subprocess.run([*MODULE, "check", "-"], input=Path(small).read_text(), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_no_colour_and_no_progress_where_there_is_no_terminal(small: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    ran = subprocess.run([*MODULE, "run", small], capture_output=True, text=True, check=True, env=environment)
    assert "\x1b" not in ran.stdout + ran.stderr
    assert ran.stderr == ""


@pytest.mark.parametrize(("how", "workers"), [("Ctrl-C", "1"), ("Ctrl-C", "2"), ("kill", "2")])
def test_an_interrupted_run_keeps_what_was_finished(small: str, how: str, workers: str) -> None:
    """A terminal sends its signal to the whole group of processes, ``kill`` to one."""
    command = [*MODULE, "run", small, "--replicas", "100000", "--workers", workers, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    time.sleep(4.0)
    if how == "Ctrl-C":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.terminate()
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    if out:  # nothing at all when the machine was too slow to finish one replica
        assert 0 < json.loads(out)["replicas"] < 100000
        assert "the replicas that were finished are kept" in errors


def killed_at(small: str, seconds: float, *more: str) -> None:
    process = subprocess.Popen([*MODULE, "run", small, "-o", "out", *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    process.kill()
    process.wait()


def complete_or_nothing() -> bool:
    """A folder with ``summary.json`` holds everything, whole; returns whether it is there."""
    import pandas as pd

    folder = Path("out")
    if not (folder / "summary.json").exists():
        return False
    summary = json.loads((folder / "summary.json").read_text())
    assert pd.read_parquet(folder / "events.parquet")["replica"].nunique() == summary["replicas"]
    assert pd.read_parquet(folder / "ledger.parquet")["replica"].nunique() == summary["replicas"]
    assert (folder / "report.html").read_text().endswith("</html>\n")
    return True


def test_kill_9_never_leaves_half_a_result(small: str) -> None:
    """A run's last half second is where files are written; kills land before, in and after it."""
    start = time.perf_counter()
    subprocess.run([*MODULE, "run", small, "-o", "out"], check=True, capture_output=True)
    whole = time.perf_counter() - start
    assert complete_or_nothing()
    for share in (0.6, 0.85, 0.95):
        killed_at(small, whole * share, "--seed", "5")
        complete_or_nothing()
    subprocess.run([*MODULE, "run", small, "-o", "out", "--seed", "6"], check=True, capture_output=True)
    assert json.loads(Path("out/summary.json").read_text())["seed"] == 6
    assert sorted(path.name for path in Path("out").iterdir() if path.name.startswith(".")) == []


@pytest.mark.prove
def test_kill_9_at_many_moments(small: str) -> None:
    start = time.perf_counter()
    subprocess.run([*MODULE, "run", small, "-o", "out"], check=True, capture_output=True)
    whole = time.perf_counter() - start
    moments = random.Random(0)
    outcomes = {False: 0, True: 0}
    for seed in range(25):
        killed_at(small, whole * moments.uniform(0.3, 1.1), "--seed", str(seed))
        outcomes[complete_or_nothing()] += 1
    assert min(outcomes.values()) > 0


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminal")
def test_progress_on_a_terminal(small: str) -> None:
    import pexpect

    def spawned(replicas: int, *more: str) -> pexpect.spawn:
        command = ["-m", "clustersim", "run", small, "--replicas", str(replicas), "--workers", "1", *more]
        return pexpect.spawn(sys.executable, command, timeout=120)

    quiet = spawned(3, "-q")
    quiet.expect(pexpect.EOF)
    assert b"/3" not in quiet.before
    quiet.close()
    shown = spawned(100_000)
    shown.expect("/100000")
    shown.kill(signal.SIGKILL)
    shown.close()
