"""Processes beside a worker, which do what it must not wait for; each ends with it."""
