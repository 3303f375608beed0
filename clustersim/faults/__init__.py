"""Failures: when they happen, what they take, how they are noticed; logs and the models fitted to them."""

from clustersim.faults import fleet as fleet
