"""A report as one HTML page: no script, nothing loaded, every string of the report escaped, whoever wrote it.

The same report gives the same bytes; a date is in it only when one is given.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fedsecure.errors import DataError, FedSecureError
from fedsecure.files import escaped, write_durably
from fedsecure_attacks.report import cheating, tables
from fedsecure_attacks.report.figure import Figure
from fedsecure_attacks.report.figures import figures
from fedsecure_attacks.report.glossary import GLOSSARY, LIMITS, TITLES
from fedsecure_attacks.report.validate import check
from fedsecure_attacks.report.words import SYMBOLS, first_page
from fedsecure_attacks.strictjson import dump

__all__ = ["html", "write_html"]

_TEMPLATES = Path(__file__).with_name("templates")
_TONES = {"LEAK": "bad", "CONTRADICTS-ACCOUNTING": "bad", "NO-LEAK-DETECTED": "none"}
#: Sections in their order, and their titles in the list of contents.
_CONTENTS = (
    ("notes", "What to know beforehand"), ("controls", "Controls"), ("attacks", "What each attack found"),
    ("figures", "Figures"), ("measured", "What else was measured"), ("epsilon", "Differential privacy"),
    ("active", "A coordinator that cheats"),
    ("classes", "People in each class"), ("worst", "Members who stood out most"),
    ("gallery", "What was released, and who is nearest"), ("limits", "Limits"), ("plan", "Plan, inputs and hashes"),
    ("glossary", "Words"),
)  # fmt: skip
_ALWAYS = {"controls", "limits", "plan", "glossary"}


def write_html(report: dict[str, Any], path: Path, *, date: str = "", error: type[FedSecureError] = DataError) -> None:
    """Write ``html(report)`` to ``path``, mode 0600. Raises ``DataError`` for what is no report, ``error`` when it
    cannot be written."""
    write_durably(path, html(report, date=date).encode(), error=error)


def html(report: dict[str, Any], *, date: str = "", drawn: Sequence[Figure] | None = None) -> str:
    """The page; ``drawn``: the figures of ``report``, where they are drawn already. Raises ``DataError`` naming what in
    ``report`` does not follow the schema."""
    check(report)
    style = (_TEMPLATES / "style.css").read_text(encoding="utf-8")
    sheet = _sheet(report, figures(report) if drawn is None else drawn)
    return _environment().get_template("report.html.j2").render(
        **sheet,
        report=report,
        date=date,
        style=Markup(style),  # noqa: S704 - a file of ours
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        contents=[(name, title) for name, title in _CONTENTS if name in _ALWAYS or sheet[name]],
    )  # fmt: skip


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, finalize=_shown,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip


def _shown(value: Any) -> Any:
    """Strings without characters that steer (control, direction): jinja escapes the rest."""
    return escaped(value) if type(value) is str else value


def _sheet(report: dict[str, Any], drawn: Sequence[Figure]) -> dict[str, Any]:
    page = first_page(report)
    columns, attacks = tables.attack_rows(report)
    gallery = tables.gallery_rows(report)
    worst = report.get("worst", [])
    return {
        "page": page, "title": TITLES[report["mode"]], "symbol": SYMBOLS[report["verdict"]],
        "tone": _TONES.get(report["verdict"], "open"),
        "report_sha256": hashlib.sha256(dump(report).encode()).hexdigest(),
        "answers": [
            ("What was asked", page.asked), ("Who could attack", page.attacker), ("What was found", page.found),
            ("How many people", page.people), ("How sure", page.sure),
        ],
        "notes": report["notes"], "controls": tables.control_rows(report), "attack_columns": columns,
        "attacks": attacks,
        "figures": drawn, "missing": _missing(report),
        "measured": _rows(tables.measured_rows(report)), "hidden": report.get("hidden_by_masks", []),
        "epsilon": tables.epsilon_rows(report), "active": _cheating(report),
        "classes": tables.class_rows(report), "worst": tables.worst_rows(report),
        "worst_named": any(entry.get("record") for entry in worst), "gallery": gallery,
        "gallery_more": max(0, len(report.get("gallery", [])) - len(gallery)),
        "gallery_pictures": any(row["pictures"] for row in gallery),
        "gallery_named": any(entry.get("member_id") for entry in report.get("gallery", [])),
        "limits": LIMITS.get(report["mode"], ()), "plan": _rows(tables.flat(report["plan"])),
        "counts": _rows(tables.flat(report["counts"])), "hashes": _hashes(report), "glossary": GLOSSARY,
    }  # fmt: skip


def _rows(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return list(islice(rows, tables.MOST_ROWS))


def _cheating(report: dict[str, Any]) -> dict[str, Any] | None:
    """Sentences and tables; what has another form as it stands."""
    if not (block := report.get("active")):
        return None
    found = cheating.tables(block)
    return {"says": cheating.sentences(block), "tables": found, "rows": () if found else _rows(tables.flat(block))}


def _missing(report: dict[str, Any]) -> list[str]:
    """Baselines that could not be had, and why."""
    given = report.get("baselines", {})
    return [
        f"Not drawn: {name}: {given.get(f'{name}_reason') or 'no reason is given'}."
        for name in ("raw images", "dp at equal accuracy")
        if name in given and given[name] is None
    ]


def _hashes(report: dict[str, Any]) -> list[tuple[str, ...]]:
    return [("plan", report["plan_sha256"]), *report["inputs_sha256"].items()]
