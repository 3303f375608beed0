"""`clustersim schema`."""

from __future__ import annotations

from clustersim.cli.options import Json


def command(json: Json = True) -> None:
    """Print the JSON Schema of scenarios; editors complete and check with it."""
    from clustersim.cli.scenarios import import_plugins
    from clustersim.cli.talk import print_json
    from clustersim.scenario.json_schema import scenario_schema

    import_plugins()
    print_json(scenario_schema())
