"""Other systems, measured in the same call."""
