"""Ports and connections: packets, TLS, who may speak, and the proof that both ends stand in the same directory."""
