"""``audit selftest``: leaks are planted into made-up data, and none into other, to see whether the attacks of this
installation find what they must, and nothing else."""
