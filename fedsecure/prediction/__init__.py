"""Routed prediction: what an analyst and a node say to each other, whoever carries it between them."""
