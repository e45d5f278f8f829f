"""What is summed: tensors as vectors in a ring, with noise and bounds, and what a sum still tells."""
