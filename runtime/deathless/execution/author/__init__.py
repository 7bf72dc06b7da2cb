"""What the author of a service fills in: handlers, queries, schedules, peers."""
