"""Datasets on this machine: sources, fetching them safely, and the cache that keeps them."""
