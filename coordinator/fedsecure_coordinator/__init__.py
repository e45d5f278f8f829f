"""The coordinator daemon: runs rounds, keeps the journal, and never sees a record."""
