"""What to do about a FailoverDrill."""
