"""Pure rules of queue and books."""
