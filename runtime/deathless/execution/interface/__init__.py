"""The interface of a code as data, and the comparison of two."""
