"""Networks that a plan may name."""
