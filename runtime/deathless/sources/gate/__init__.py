"""The connector gate: programs outside send streams to inputs of a service by the connector protocol."""
