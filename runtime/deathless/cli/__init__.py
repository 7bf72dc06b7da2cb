"""What a user types: parsing and printing. What a command does is done by the shell and the layers below."""
