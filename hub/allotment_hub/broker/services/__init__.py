"""The broker's rules and loops: leases, queue, fleet, explanations."""
