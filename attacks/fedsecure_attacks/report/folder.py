"""A report in a folder of its own: ``report.json`` and the page made of it, ``report.html``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedsecure.errors import ConfigError
from fedsecure.files import make_folder, write_durably
from fedsecure_attacks.report.render import html
from fedsecure_attacks.strictjson import dump

__all__ = ["write_report"]


def write_report(report: dict[str, Any], folder: Path) -> list[Path]:
    """Both files, mode 0600, replacing earlier ones; the folder is made where it is missing. Raises ``ConfigError``
    when they cannot be written, ``DataError`` for what does not follow the schema; then neither is."""
    page = html(report)
    make_folder(folder, private=True, error=ConfigError)
    written = [folder / "report.json", folder / "report.html"]
    for path, text in zip(written, (dump(report), page), strict=True):
        write_durably(path, text.encode(), error=ConfigError)
    return written
