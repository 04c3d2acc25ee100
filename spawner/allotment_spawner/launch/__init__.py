"""What to make: pure descriptions of containers and processes."""
