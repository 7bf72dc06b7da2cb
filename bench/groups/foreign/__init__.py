"""Groups of figures about services whose code is a program in another language."""
