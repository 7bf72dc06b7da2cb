"""Protocols of others, without IO: their bytes, and what each end may say when."""
