"""Condensing records into a few images: matching, distances, resampling, augmentation, the loop."""
