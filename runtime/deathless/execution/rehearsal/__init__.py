"""New code beside the former one on the messages of a log: what each did, and where they differ."""
