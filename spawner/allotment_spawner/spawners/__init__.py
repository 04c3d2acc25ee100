"""JupyterHub spawners that wait for a lease and run on its device."""
