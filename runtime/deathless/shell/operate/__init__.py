"""What tools do with a service: start it, look at it, replay, verify and adopt it."""
