"""`deathless ambrosia check`: drives an author's program through everything that a coordinator may do with it."""
