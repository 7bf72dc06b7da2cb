"""A language binding for the AMBROSIA client protocol, without IO, written from the protocol's page."""
