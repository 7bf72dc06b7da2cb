"""Pipelines of Spark as their manifests describe them, and what their drivers are started with."""
