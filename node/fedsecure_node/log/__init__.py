"""The release log: what left, decided by whom, hash-chained and signed; and what is written of each release."""
