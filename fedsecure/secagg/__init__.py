"""Secure aggregation, sans IO: who is summed, what is summed, what travels, and the machines that do it."""
