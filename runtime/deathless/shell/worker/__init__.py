"""The worker: the process that runs one replica's engine, and the processes that it starts."""
