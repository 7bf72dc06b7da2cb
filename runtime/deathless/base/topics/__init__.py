"""Topics: rows that a service publishes."""
