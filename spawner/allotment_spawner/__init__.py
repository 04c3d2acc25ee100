"""Machines: devices, allocation, engines and spawners."""
