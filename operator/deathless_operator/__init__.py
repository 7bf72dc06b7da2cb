"""The Kubernetes operator of Deathless: observe -> plan (pure) -> server-side apply (docs/design/0005)."""
