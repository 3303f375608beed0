"""Options that every command takes. One that a command has no use for is taken and not shown, so that one line of options
fits all."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from clustersim.cli.options import Address, ExecutorName, Quiet, Replicas, Seed, Verbose, Workers


def _talk(quiet: Quiet = False, verbose: Verbose = 0) -> None:
    """Of every command."""


def _chance(seed: Seed = None, replicas: Replicas = None, workers: Workers = None, executor: ExecutorName = None,
            address: Address = None) -> None:  # fmt: skip
    """Of every command that reads a scenario; where nothing is drawn at random (``step``, ``check``) they change nothing."""


def complete(command: Any, scenario: bool) -> None:
    """Give ``command``, or each command of a group, the options that it lacks; ``scenario``: whether it reads one."""
    if isinstance(command, TyperGroup):
        for below in command.commands.values():
            complete(below, scenario)
        return
    known = {name for parameter in command.params for name in parameter.opts}
    for function in (_talk, _chance) if scenario else (_talk,):
        for option in _options(function):
            if not known.intersection(option.opts):
                option.hidden, option.expose_value = True, False
                command.params.append(option)


def _options(function: Any) -> list[Any]:
    """The options of a command made of ``function``."""
    group = typer.Typer(add_completion=False)
    group.command()(function)
    return [parameter for parameter in typer.main.get_command(group).params if "--help" not in parameter.opts]
