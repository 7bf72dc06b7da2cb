"""A primary's work, one module for each part of it."""
