"""`clustersim schema`."""

from __future__ import annotations


def command() -> None:
    """Print the JSON Schema of scenarios; editors complete and check with it."""
    from clustersim.cli.talk import print_json
    from clustersim.scenario.json_schema import scenario_schema

    print_json(scenario_schema())
