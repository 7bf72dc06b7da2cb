"""The ports simulated: seeded scheduler, disk, network, lock, and the checkers of what they show."""
