"""Which types may be declared, and what bytes depend on in them."""
