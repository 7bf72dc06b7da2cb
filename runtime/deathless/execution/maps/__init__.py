"""`Map`: a collection in the state of a key, kept item by item."""
