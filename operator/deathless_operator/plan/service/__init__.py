"""What to do about a DeathlessService."""
