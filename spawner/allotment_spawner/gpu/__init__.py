"""Hardware: NVML, partitioning, CDI, the simulator and the agent."""
