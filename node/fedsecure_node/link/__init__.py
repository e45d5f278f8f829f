"""The node's side of the wire: dial out, diagnose, fetch, send."""
