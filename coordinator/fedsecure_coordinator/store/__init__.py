"""What survives a restart: the journal, and blobs by their digests."""
