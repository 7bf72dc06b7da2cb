"""What is measured: a module for each group of figures."""
