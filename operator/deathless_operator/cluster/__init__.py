"""The API server: reading snapshots, carrying out plans, leader election, certificates."""
