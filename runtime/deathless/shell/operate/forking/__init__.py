"""Services that talk to each other, forked at one cut into another folder: `deathless fork`."""
