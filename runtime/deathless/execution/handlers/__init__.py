"""Handlers made ready to run: decoders, encoders, and the state they work on."""
