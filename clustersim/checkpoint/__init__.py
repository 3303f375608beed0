"""Checkpoint engines: what is saved where, how often, what stalls, and what survives which loss."""

from clustersim.checkpoint import asynchronous, sync

__all__ = ["asynchronous", "sync"]
