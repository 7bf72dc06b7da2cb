"""The deterministic part of a replica: state as a function of the log."""
