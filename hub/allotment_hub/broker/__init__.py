"""The one process that owns leases and the queue."""
