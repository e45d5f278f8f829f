"""Calls of nodes: who calls, what they may ask, and how bytes come in."""
