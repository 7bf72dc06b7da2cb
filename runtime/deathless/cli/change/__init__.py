"""Commands that change something: calls, and what operators decide."""
