"""One turn: what its context shows, what it may ask for, and what it wrote."""
