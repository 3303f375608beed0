"""What all tests share: reproducible hypothesis profiles, a plain terminal."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

os.environ["NO_COLOR"] = "1"
os.environ["COLUMNS"] = "80"
