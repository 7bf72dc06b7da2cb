"""The loop that carries a replica's effects out over the ports."""
