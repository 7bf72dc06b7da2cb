"""Sources: what is read outside gets into inputs of a service, each exactly once. Started beside replicas."""
