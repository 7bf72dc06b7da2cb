"""The operator's process: arguments, logging, its start and its end."""
