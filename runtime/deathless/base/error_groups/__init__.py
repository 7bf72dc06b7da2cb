"""Errors that `deathless.base.errors` has beside its own: the kinds, and those of one subject each."""
