"""fedsecure: training together without pooling data.

The library is pure: it opens no socket, reads no command line, never prints, and takes time and randomness
as arguments. The daemons live beside it in ``fedsecure_node`` and ``fedsecure_coordinator``.
"""

__version__ = "0.1.0.dev0"
