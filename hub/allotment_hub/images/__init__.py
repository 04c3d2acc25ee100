"""Notebook images on this machine's engine: what there is, bringing, warming and removing it."""
