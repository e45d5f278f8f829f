"""A report read from a file that anybody may have written: strict JSON of the published schema, or one line that says
what is wrong with it."""

from __future__ import annotations

import json
import math
import os
import stat
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from fedsecure.errors import DataError
from fedsecure.files import faults as file_faults
from fedsecure.files import shown
from fedsecure_attacks.report.deduced import against_verdict
from fedsecure_attacks.report.recounted import misfits
from fedsecure_attacks.report.schema import faults, report_schema
from fedsecure_attacks.verdict import Word

__all__ = ["MOST_BYTES", "check", "read_report"]

#: The most bytes of a report: 64 MiB.
MOST_BYTES = 64 << 20
#: An integer of more digits is no count of anything.
MOST_DIGITS = 20
_EDITED = "it was changed after the audit, or is damaged: take the report that the audit wrote"


def read_report(path: Path) -> dict[str, Any]:
    """The report in ``path``. Raises ``DataError`` of one line for what is no file, too large, not strict JSON (a NaN,
    an infinity, a key twice), or no report."""
    hint = "give a report.json of an audit"
    with file_faults(path, "read", DataError), open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise DataError(f"{shown(path)}: is not a regular file", hint=hint)
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise DataError(f"{shown(path)}: larger than {MOST_BYTES >> 20} MiB", hint=hint)
    try:
        report = json.loads(
            data.decode("utf-8"),
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_integer,
            object_pairs_hook=_unique,
        )
    except RecursionError:
        raise DataError(
            f"{shown(path)}: JSON that is nested too deeply", hint="give a report.json of an audit"
        ) from None
    except ValueError as error:  # no UTF-8, no JSON, or not strict
        raise DataError(f"{shown(path)}: not strict JSON: {error}", hint=hint) from None
    return check(report, shown(path))


def check(report: Any, name: str = "report") -> dict[str, Any]:
    """``report``, if it follows the schema and says one thing: its verdict is one that its figures allow, and these fit
    each other. Raises ``DataError`` naming the first key that does not."""
    found = list(islice(faults(report, report_schema()), 2))
    if found:
        more = " (and more)" if len(found) > 1 else ""
        raise DataError(f"{name}: not the report of an audit: {found[0]}{more}", hint="see report/schema.json")
    assert isinstance(report, dict)
    if Word(report["verdict"]).exit_code != report["exit_code"]:
        raise DataError(f"{name}: verdict {report['verdict']} does not go with exit code {report['exit_code']}")
    for said in against_verdict(report):
        raise DataError(f"{name}: says {report['verdict']}, but {said}", hint=_EDITED)
    for kind in ("roc", "theory"):
        for attack, curve in report.get(kind, {}).items():
            if len({len(points) for points in curve.values() if isinstance(points, list)}) != 1:
                raise DataError(f"{name}: {kind}.{shown(attack)}: lists of different lengths")
    for said in misfits(report):
        raise DataError(f"{name}: figures do not fit each other: {said}", hint=_EDITED)
    return report


def _without_waiting(path: str, flags: int) -> int:
    """Opens a pipe that nobody writes to without waiting for one."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:MOST_DIGITS]} is larger than any number here")
    return value


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
