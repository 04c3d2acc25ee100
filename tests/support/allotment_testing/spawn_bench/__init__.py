"""Parts of bench-spawn: two hubs on one dockerd, their clients, and the statistics."""
