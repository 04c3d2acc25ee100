"""What runs workloads, seen through one small interface."""
