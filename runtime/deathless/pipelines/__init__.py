"""Pipelines: rows that a computation gives in batches, and who computes them, as a service of ours. See `service`."""
