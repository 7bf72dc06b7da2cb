"""A language binding for the AMBROSIA client protocol, without IO, after the protocol's page."""
