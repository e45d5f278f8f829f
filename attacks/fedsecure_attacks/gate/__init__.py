"""The audit of one release, before it leaves a node or after: the only part of this package that a node imports."""

from fedsecure_attacks.gate.release import LEAST_HELD_OUT, MEMBERS, ReleaseAudit, ReleaseProfile, audit_release
from fedsecure_attacks.gate.telling import require_folder, show_release, write_report
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.strictjson import dump
from fedsecure_attacks.verdict import Thresholds, Word

__all__ = [
    "LEAST_HELD_OUT",
    "MEMBERS",
    "Labelled",
    "ReleaseAudit",
    "ReleaseProfile",
    "Thresholds",
    "Word",
    "audit_release",
    "dump",
    "require_folder",
    "show_release",
    "write_report",
]
