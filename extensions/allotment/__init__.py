"""Allotment in the notebook and the terminal."""
