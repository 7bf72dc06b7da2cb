"""What every replica of a shard holds beside its state: sessions, keys, outbox, results. Pure."""
