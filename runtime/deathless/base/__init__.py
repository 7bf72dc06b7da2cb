"""Words, numbers and errors that every other layer shares. Imports nothing of ours."""
