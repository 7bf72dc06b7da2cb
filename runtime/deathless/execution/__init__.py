"""What runs a service: its registry, its turns and its keyed state. Pure: no clock, no chance, no outside world."""
