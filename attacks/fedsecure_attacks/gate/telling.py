"""What an audit of a release tells: on the terminal, and as files."""

from __future__ import annotations

from pathlib import Path

from fedsecure.errors import ConfigError
from fedsecure.files import make_folder, write_durably
from fedsecure_attacks.gate.release import ReleaseAudit

__all__ = ["show_release", "write_report"]


def show_release(made: ReleaseAudit) -> None:
    """The verdict, controls, notes and a line an attack, on stdout."""
    from fedsecure_attacks.cli import show_audit

    show_audit(made.audit)


def write_report(made: ReleaseAudit, folder: Path) -> dict[str, Path]:
    """Write ``report.json`` and ``report.html`` into ``folder`` (0600); returns them. Raises ``ConfigError``."""
    from fedsecure_attacks.report.render import write_html

    make_folder(folder, error=ConfigError)
    written = {"json": folder / "report.json", "html": folder / "report.html"}
    write_durably(written["json"], made.report_bytes(), error=ConfigError)
    write_html(made.report(), written["html"], error=ConfigError)
    return written
