"""From a snapshot of the cluster to what is to be done, as pure functions."""
