"""Attacks on what a federation releases."""
