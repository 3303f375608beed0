"""Options that the contract gives to every command; parts of installed packages are known to every command too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clustersim.part import Part
from clustersim.scenario import parts

Cli = Callable[..., Any]
OF_SCENARIOS = ("--seed", "5", "--replicas", "2", "--workers", "1", "--executor", "serial")


@pytest.mark.parametrize("command", ["run", "step", "check"])
def test_a_command_that_reads_a_scenario_takes_them_all(cli: Cli, small: str, command: str) -> None:
    ran = cli(command, small, "--set", "training.duration=2 h", *OF_SCENARIOS, "--json", "-q", "-v")
    assert ran.code == 0
    assert isinstance(ran.json, dict)


def test_they_change_nothing_where_nothing_is_drawn(cli: Cli, small: str) -> None:
    assert cli("step", small, *OF_SCENARIOS, "--json").out == cli("step", small, "--json").out
    assert "--seed" not in cli("step", "--help").out


def test_a_study_takes_them_all(cli: Cli, small: str) -> None:
    ran = cli("sweep", small, "--over", "cluster.spare_nodes=1", "--set", "training.duration=2 h", *OF_SCENARIOS, "--json",
              "-q", "-v")  # fmt: skip
    assert ran.json["seed"] == 5
    ran = cli("plan", small, "--set", "training.duration=2 h", "--space", "tp=2", "--layouts", "1", *OF_SCENARIOS, "--json",
              "-q", "-v")  # fmt: skip
    assert ran.json["seed"] == 5


@pytest.mark.parametrize(
    "command",
    [("schema",), ("init", "-"), ("init", "new.yaml"), ("list",), ("list", "gpus"), ("schedule", "list"),
     ("schedule", "export", "gpipe"), ("schedule", "evaluate", "gpipe"), ("validate", "--list")],
    ids=" ".join,
)  # fmt: skip
def test_every_command_gives_json_and_may_be_quiet_or_tell_more(cli: Cli, small: str, command: tuple[str, ...]) -> None:
    ran = cli(*command, "--json", "-v", "-q")
    assert ran.code == 0
    assert ran.json


def test_op_lists_as_json_are_those_of_the_table(cli: Cli) -> None:
    table = cli("schedule", "export", "zb-h1", "--pp", "3", "-m", "5").out
    told = cli("schedule", "export", "zb-h1", "--pp", "3", "-m", "5", "--json").json
    assert told["ranks"] == [line.split(",") for line in table.splitlines()]
    assert (told["schedule"], told["stages"], told["microbatches"], told["slices"]) == ("zb-h1", 3, 5, 1)


def test_schedules_are_listed_with_their_options(cli: Cli) -> None:
    told = {item["name"]: item["options"] for item in cli("schedule", "list", "--json").json}
    assert told["zb-auto"]["memory"] == 1.0
    assert told["csv"]["file"] is None
    text = cli("schedule", "list").out
    assert "options: file –, independent_chains 1, slices –" in text
    assert text.splitlines()[-1].startswith("Options of all: vocabulary_parallel none, ")


def test_an_op_list_is_exported_again(cli: Cli, small: str) -> None:
    assert cli("schedule", "export", "gpipe", "-o", "mine.csv").code == 0
    assert cli("schedule", "export", "csv", "--set", "file=mine.csv").out == Path("mine.csv").read_text()
    ran = cli("schedule", "export", "csv")
    assert (ran.code, ran.err) == (2, "file: is missing\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(("run",), "clustersim run: Missing argument 'SCENARIO' (clustersim run -h tells its arguments)"),
     (("run", "x", "--nope"), "clustersim run: No such option: --nope (clustersim run -h tells its arguments)"),
     (("rum",), "clustersim: There is no command 'rum'; did you mean 'run'? (clustersim -h tells its arguments)"),
     (("schedule", "export", "gpipe", "--pp", "0"), "clustersim schedule export: Invalid value for '--pp': ")],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_wrong_usage_is_told_in_one_line(cli: Cli, arguments: tuple[str, ...], sentence: str) -> None:
    ran = cli(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(sentence)
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("group", ["schedule", "fit"])
def test_a_group_alone_tells_its_commands(cli: Cli, group: str) -> None:
    ran = cli(group)
    assert ran.code == 2
    assert "Commands:" in ran.err


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package that announces an optimizer with the entry-point group."""
    (tmp_path / "far_parts.py").write_text(
        "from clustersim.workload.training import Optimizer\n\n\n"
        'class Far(Optimizer, kind="far-away"):\n    """Of another package."""\n'
    )
    about = tmp_path / "far-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: far\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[clustersim.parts]\nfar = far_parts\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    parts.import_installed.cache_clear()
    yield
    sys.modules.pop("far_parts", None)
    Part.families["optimizer"].kinds.pop("far-away", None)
    parts.import_installed.cache_clear()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("command", [("list", "optimizers"), ("schema",)], ids=" ".join)
def test_parts_of_installed_packages_are_told(cli: Cli, command: tuple[str, ...]) -> None:
    assert "far-away" in cli(*command).out
