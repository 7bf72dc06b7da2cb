"""What people are told of a program: what it did since the process beside its replica began. See `counts`."""
