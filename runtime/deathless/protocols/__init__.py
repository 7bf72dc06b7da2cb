"""Protocols that others defined, as machines without IO; each lives in a package of its own."""
