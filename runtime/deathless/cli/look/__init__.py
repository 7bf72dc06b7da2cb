"""Commands that show something and change nothing, and what goes with them."""
