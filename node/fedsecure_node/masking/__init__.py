"""The node in sums under masks: whom it may be summed with, and its part in each session."""
