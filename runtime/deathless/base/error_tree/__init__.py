"""The tree of errors, in parts; everybody imports them from `deathless.base.errors`."""
