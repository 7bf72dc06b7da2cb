"""Applications in other languages: their processes, their two sockets, and what checks them."""
