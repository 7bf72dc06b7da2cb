"""Locks: in the directory itself, and the face that the engine sees."""
