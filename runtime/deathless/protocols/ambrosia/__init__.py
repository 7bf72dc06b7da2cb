"""The coordinator's end of the AMBROSIA client protocol, without IO (docs/design/0030-ambrosia-protocol.md)."""
