"""The supervisor: the first process of a replica, which keeps its worker running and detects failure."""
