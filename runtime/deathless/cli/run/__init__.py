"""Commands that run a service, a replica or a driver."""
