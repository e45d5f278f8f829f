"""Shadows of whole federated runs: FedAF itself, simulated with one node whose records are random halves of the pool,
and what outsider, other node and coordinator see of it."""
