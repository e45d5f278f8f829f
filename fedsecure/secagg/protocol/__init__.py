"""What travels between the nodes of a session and the coordinator, read strictly, and what binds it together."""
