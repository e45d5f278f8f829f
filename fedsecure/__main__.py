"""``python -m fedsecure`` is the ``fedsecure`` command."""

from fedsecure.cli import main

main()
