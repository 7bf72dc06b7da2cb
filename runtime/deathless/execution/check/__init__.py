"""`deathless check`, the part that reads source files."""
