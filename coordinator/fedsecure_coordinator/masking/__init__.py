"""Sums under masks: the cohorts that may be summed, and the sessions that sum them."""
