"""Between a broadcast model and the records: who sticks out under it, and what was answered under it before."""
