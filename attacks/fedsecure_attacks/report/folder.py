"""A report in a folder of its own: ``report.json``, the page made of it, ``report.html``, and the page's figures as
files of their own, ``report-roc.svg`` and so on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedsecure.errors import ConfigError
from fedsecure.files import faults, make_folder, write_durably
from fedsecure_attacks.report.figures import figures
from fedsecure_attacks.report.render import html
from fedsecure_attacks.report.sweep import VIEWS
from fedsecure_attacks.report.validate import check
from fedsecure_attacks.strictjson import dump

__all__ = ["NAMES", "write_report"]

#: All pictures that a report may have.
PICTURES = {name: f"report-{name}.svg" for name in ("roc", *VIEWS)}
#: All files that a report may have.
NAMES = ("report.json", "report.html", *PICTURES.values())


def write_report(report: dict[str, Any], folder: Path) -> list[Path]:
    """The files that were written, mode 0600: JSON, page, figures. They replace those of an earlier report, and figures
    that this one does not have are removed; the folder is made where it is missing. Raises ``ConfigError`` when they
    cannot be written, ``DataError`` for what does not follow the schema; then none is."""
    text = dump(check(report))
    report = json.loads(text)  # as whoever reads the file has it, in whose order the page is
    drawn = figures(report)
    texts = {"report.json": text, "report.html": html(report, drawn=drawn)}
    texts |= {PICTURES[figure.name]: figure.svg for figure in drawn}
    make_folder(folder, private=True, error=ConfigError)
    for name in set(PICTURES.values()) - set(texts):
        with faults(folder / name, "removed", ConfigError):
            (folder / name).unlink(missing_ok=True)
    for name, text in texts.items():
        write_durably(folder / name, text.encode(), error=ConfigError)
    return [folder / name for name in texts]
