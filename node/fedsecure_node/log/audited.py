"""What the log says of a release's membership audit, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["NOT_AUDITED", "Audited", "Then", "audit_line", "audit_words"]

#: What becomes of a release by its audit: it may leave, it waits for a person, or it never leaves.
Then = Literal["leave", "hold", "withhold"]
NOT_AUDITED = "not audited"


@dataclass(frozen=True, slots=True)
class Audited:
    """``result``: a verdict's word, or ``not audited``; ``reason``: a sentence; ``report``: SHA-256 (hex) of the report
    in the store, ``""`` without one; ``profile``: how much was computed; ``members``: SHA-256 of the records that it
    compared."""

    result: str = NOT_AUDITED
    reason: str = ""
    then: Then = "leave"
    report: str = ""
    profile: str = ""
    members: str = ""

    def to_json(self) -> dict[str, Any]:
        """The ``audit`` object of a release's record: what was made, and what it means."""
        told = {"result": self.result, "reason": self.reason, "then": self.then}
        kept = {"report": self.report, "profile": self.profile, "members": self.members}
        return told | (kept if self.report else {})

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Audited:
        """From the record of a release; of one from before there were audits, that there was none."""
        told = body.get("audit", {})
        return cls(
            str(told.get("result", NOT_AUDITED)),
            str(told.get("reason", "")),
            told.get("then", "leave"),
            str(told.get("report", "")),
            str(told.get("profile", "")),
            str(told.get("members", "")),
        )


def audit_line(body: Mapping[str, Any]) -> str:
    """Result and reason in one line."""
    audited = Audited.of(body)
    return f"{audited.result}: {audited.reason}" if audited.reason else audited.result


def audit_words(body: Mapping[str, Any]) -> list[str]:
    """What a page says of it."""
    audited = Audited.of(body)
    lines = [f"Membership audit: {audit_line(body)}."]
    if audited.report:
        lines.append(
            f"It was made on the bytes of this release before they could leave ({audited.profile}); its report is in"
            f" the store, with SHA-256 {audited.report}, and never leaves."
        )
    return lines
