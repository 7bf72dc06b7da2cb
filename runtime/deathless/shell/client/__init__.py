"""The Python clients of a service."""
