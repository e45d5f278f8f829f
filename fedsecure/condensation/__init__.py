"""Condensation: a class's records distilled into a few images (or rows) whose means a network cannot tell apart."""
