"""Bytes to records and back; pure. Each format is documented byte by byte in `docs/formats/`."""
