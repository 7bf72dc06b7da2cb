"""Ports to the world, and the loop that carries the core's effects out in order."""
