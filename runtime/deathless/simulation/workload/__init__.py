"""What simulated clients ask for, and the services that they ask."""
