"""The commands, each in a module of its own that loads when it is called: `--help` needs none of them."""

from __future__ import annotations

import importlib
import os
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from clustersim.cli.everywhere import complete
from clustersim.cli.talk import say
from clustersim.errors import ClusterSimError, nearest

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module below clustersim.cli, one line of help); the module holds `app` (a group) or `command` (a function)
    "run": ("run", "Simulate a whole training run, several times, and say where the time goes."),
    "step": ("step", "Time one training step: MFU, breakdown, memory of each stage."),
    "check": ("check", "Find every mistake in scenarios, and whether they fit in memory."),
    "init": ("init", "Write a commented scenario to start from."),
    "list": ("listing", "Show presets and parts: gpus, models, schedules, engines, …"),
    "schema": ("schema", "Print the JSON Schema of scenarios, for editors."),
    "compare": ("compare", "Run designs on the same failures and say which is better."),
    "sweep": ("sweep", "Run a scenario at many points: table, figure, best point; resumable."),
    "plan": ("plan", "Search layouts and rank designs by tokens kept after failures."),
    "importance": ("importance", "Which inputs matter, and how much of the spread is luck."),
    "results": ("results", "Merge, check and export the records of a study."),
    "validate": ("validate", "Compare predictions with published measurements, or with your own."),
    "fit": ("fit", "Fit models to measurements: failures from a log, a profile from real hardware."),
    "schedule": ("schedule", "List, export, check and evaluate pipeline schedules."),
}

SCENARIOS = ("run", "step", "check", "compare", "sweep", "plan", "importance")
"""Commands that read scenarios."""

HELP = """Simulate large training clusters: how much useful training you get, where the rest of the time goes.

Start with: clustersim init my-job.yaml; clustersim run my-job.yaml"""


class ReaderGone(ClusterSimError):
    """Whoever read the output closed it before its end."""


class Interrupted(ClusterSimError):
    """Ctrl-C."""

    exit_code = 130


class LazyGroup(TyperGroup):
    """A group whose commands are imported when they are called."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; typer itself would end silently on these two."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderGone from None
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in with name and help: enough to list the commands."""
        return TyperCommand(name=cmd_name, help=COMMANDS[cmd_name][1]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is called, its module imported."""
        name = args[0]
        if name in COMMANDS:
            return name, load_command(name), args[1:]
        if not name.startswith("-"):
            ctx.fail(f"There is no command '{name}'{nearest(name, COMMANDS) or '.'}")
        return super().resolve_command(ctx, args)


def load_command(name: str) -> Any:
    """The command's click object, its module imported."""
    module = importlib.import_module(f"clustersim.cli.{COMMANDS[name][0]}")
    group = getattr(module, "app", None)
    if group is None:
        group = typer.Typer(add_completion=False, rich_markup_mode=None)
        group.command(name)(module.command)
    command = typer.main.get_command(group)
    command.name = name
    complete(command, name in SCENARIOS)
    return command


app = typer.Typer(cls=LazyGroup, help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich",
                  context_settings={"help_option_names": ["-h", "--help"]})  # fmt: skip


def _version(asked: bool) -> None:
    if asked:
        from clustersim import __version__

        say(f"clustersim {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    if os.environ.get("NO_COLOR"):
        os.environ.setdefault("TERM", "dumb")
