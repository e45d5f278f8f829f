"""What an audit of a release tells: on the terminal, and as files."""

from __future__ import annotations

from pathlib import Path

from fedsecure_attacks.gate.release import ReleaseAudit

__all__ = ["require_folder", "show_release", "write_report"]


def show_release(made: ReleaseAudit) -> None:
    """The verdict, controls, notes and a line an attack, on stdout."""
    from fedsecure_attacks.cli.app import show_audit

    show_audit(made.audit)


def require_folder(folder: Path) -> None:
    """Raise ``ConfigError`` unless a report can be written into ``folder``."""
    from fedsecure_attacks.cli.places import require_places
    from fedsecure_attacks.report.folder import NAMES

    require_places({}, out=folder, names=NAMES)


def write_report(made: ReleaseAudit, folder: Path) -> dict[str, Path]:
    """Write ``report.json``, ``report.html`` and figures into ``folder`` (0600); returns them by name. Raises
    ``ConfigError``."""
    from fedsecure_attacks.report import folder as pages

    return {path.name: path for path in pages.write_report(made.report(), folder)}
