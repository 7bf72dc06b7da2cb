"""What leads through an upgrade, and what is looked at before: on a machine of one's own, and in a cluster."""
