"""A service's code: loaded, and identified by its fingerprint."""
