"""Which nodes may be summed under masks: the manifests that all of them signed."""
