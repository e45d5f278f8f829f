"""The node daemon of an institution: what stands between its records and the coordinator."""
