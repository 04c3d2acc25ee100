"""Setting up and supervising the services on one machine."""
