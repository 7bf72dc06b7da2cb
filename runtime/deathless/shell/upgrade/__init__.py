"""What an upgrade needs beside the engine: the former code's process, and what is made of its state."""
