"""One file a schedule; each registers itself when it is imported (see ``clustersim.pipeline.schedule``)."""
