"""What left, for a person to look at: contact sheets and self-contained pages."""
