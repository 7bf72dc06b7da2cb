"""What every process of ours needs: an event loop, logs, output that never waits, children and their end."""
