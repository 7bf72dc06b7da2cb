"""What to do about one run of a service's log in a pod of its own; see `run`."""
