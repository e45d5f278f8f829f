"""Methods: only what differs between them."""
