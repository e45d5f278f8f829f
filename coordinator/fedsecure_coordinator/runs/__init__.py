"""Runs: one in memory, all of them, how they are taken up, and what happens to them."""
