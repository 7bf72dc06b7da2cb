"""Sinks: readers of topics that store rows outside, each exactly once. Started beside replicas, never by users."""
