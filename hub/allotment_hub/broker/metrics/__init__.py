"""How hard devices and sessions work: sampled, kept in a file of its own, and read back."""
