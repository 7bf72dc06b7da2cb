"""Streams, which are numbered input from outside: their records, their packets and their part of a checkpoint."""
