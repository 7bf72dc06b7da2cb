"""Services whose code is a program in any language: it speaks the AMBROSIA client protocol. See `service`."""
