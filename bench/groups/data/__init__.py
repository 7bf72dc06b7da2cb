"""Figures of rows that come in and go out: sources, topics, sinks, and pipelines of Spark."""
