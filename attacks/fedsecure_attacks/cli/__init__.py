"""The commands of ``fedsecure audit``: arguments in, sentences and exit codes out."""
