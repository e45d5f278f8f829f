"""The node's durable store: SQLite tables and files under their digests."""
