"""Secure aggregation, sans IO: fixed point, streams, the cohort's manifest, transcripts."""
