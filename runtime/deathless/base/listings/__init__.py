"""What operators are shown of sources, sinks and pipelines, in the same words on a laptop and in a cluster."""
