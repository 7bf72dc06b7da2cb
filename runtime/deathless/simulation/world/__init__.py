"""Simulated time, disk, network, lock and directory."""
