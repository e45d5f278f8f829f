"""``audit mechanism``: the auditor condenses random halves of a pool itself, so that who is in is a fair coin, and asks
what a method's releases tell: by images per class, by how they start, by noise."""
