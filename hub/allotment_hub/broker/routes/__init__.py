"""The broker's HTTP routes."""
