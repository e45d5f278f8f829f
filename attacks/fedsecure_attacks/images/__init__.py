"""Attacks on condensed records and the statistics beside them. Each takes what its attacker sees and candidates, and
gives one score a candidate; larger means more likely a member. None is told who is one."""
