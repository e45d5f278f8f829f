"""The two sides of a session as sans-IO state machines, and what they are made of."""
