"""Drills: the fault, the calls that watch it, the verdict. Runs in pods of its own."""
