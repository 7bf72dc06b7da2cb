"""Wiring: kopf's watches into one queue per kind, workers, metrics."""
