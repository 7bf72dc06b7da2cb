"""What a manifest says of programs in other languages. See `binding`."""
