"""Simulated replicas and the clusters that they form."""
