"""A replica in a pod: its config, what it writes on the pod, and its health port."""
