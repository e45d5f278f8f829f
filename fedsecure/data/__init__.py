"""Records: sources, checks against the plan, partitions."""
