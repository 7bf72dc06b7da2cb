"""The HTTP ingress: a process beside a replica that turns requests into calls and queries."""
