"""The locks that a config can name: how one is opened, asked, and erased with its service."""
