"""Small models of protocols, explored exhaustively."""
