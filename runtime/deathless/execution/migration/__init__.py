"""Stored state, items and waiting messages, from the bytes of one version to those of the next."""
