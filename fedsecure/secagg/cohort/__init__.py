"""Who may ever be summed together, and how many of them must stand together."""
