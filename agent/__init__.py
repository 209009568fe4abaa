"""The sidecar: one process per node that reads the node and publishes what it saw."""
