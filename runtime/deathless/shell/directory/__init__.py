"""What stands in a service's directory: who it belongs to, which replicas there are, what was adopted."""
