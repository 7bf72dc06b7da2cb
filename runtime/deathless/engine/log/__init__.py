"""The log of a shard over a shared directory: segments, checkpoints, spare space."""
