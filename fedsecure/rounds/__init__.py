"""The rounds of a run, sans IO: ``events`` in, ``machine`` decides by the table of ``transitions``, actions out."""
