"""Who may speak: certificates, callers, and the directory that both ends stand in."""
