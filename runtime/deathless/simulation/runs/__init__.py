"""One run of a seed: faults, verdict, report."""
