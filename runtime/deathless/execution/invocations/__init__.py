"""Handlers that wait: who holds which key, what was asked for, and what that gave."""
