"""Groups of figures about other code for a service: upgrades, what goes before them, and what fails."""
