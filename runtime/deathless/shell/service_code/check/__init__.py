"""`deathless check`: the same calls in processes that differ in one thing each."""
