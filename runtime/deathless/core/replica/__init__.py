"""A replica's life: follower, takeover, primary, and the witness of what was confirmed."""
