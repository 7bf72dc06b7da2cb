"""What is measured on a real cluster."""
