"""What an operator sees of runs, and takes away."""
