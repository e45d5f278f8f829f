"""The commands of the composition root: ca, plan, simulate, demo. Heavy imports happen inside commands only."""
