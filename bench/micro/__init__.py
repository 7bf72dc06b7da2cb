"""One part alone, without its process."""
