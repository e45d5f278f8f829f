"""Text from elsewhere - class names, reasons - made safe to show on a terminal."""

from __future__ import annotations

from fedsecure.text import printable

__all__ = ["printable"]
