"""The demo: a bank whose processes can be killed and frozen while it is judged."""
