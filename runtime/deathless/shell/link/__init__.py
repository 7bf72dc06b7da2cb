"""What the processes of one replica share: config, settings, orders, the status page."""
