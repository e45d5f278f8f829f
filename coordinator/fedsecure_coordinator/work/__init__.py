"""The coordinator's own computation."""
