"""The public names of ``clustersim.study`` are functions, whatever was imported before."""

from __future__ import annotations

import subprocess
import sys

import clustersim.study as study


def test_names_stay_functions_after_imports() -> None:
    for name in study.__all__:
        assert callable(getattr(study, name))
        assert callable(getattr(study, name)), "a second look must find the same"
    assert set(study.__all__) <= set(dir(study))


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, clustersim.study; print([m for m in ('numpy', 'pandas', 'scipy', 'dask') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
