"""The runtime of task networks."""
