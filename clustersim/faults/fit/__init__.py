"""Failure models from incident logs: reading, estimating, checking, and writing a block that runs."""
