"""What is noted about a release after it was logged, by the daemon or by a person, where its state allows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedsecure.errors import ConfigError
from fedsecure_node.log.chain import Record
from fedsecure_node.log.releaselog import ReleaseLog
from fedsecure_node.log.releases import Release, next_state

__all__ = ["decide", "note"]


def note(log: ReleaseLog, number: int, kind: str, fields: Mapping[str, Any] | None = None) -> Record:
    """Add a record about a release, if its state allows that kind now. Raises ``LocalProtocolError``."""
    return log.append(kind, {"release": number, **(fields or {})}, only_if=_allowed(number, kind))


def decide(log: ReleaseLog, number: int, *, release: bool, by: str, reason: str) -> Record:
    """A person releases or refuses a held release. Raises ``LocalProtocolError`` when it is not held."""
    kind = "released" if release else "refused"
    return note(log, number, kind, {"by": by, "reason": reason})


def _allowed(number: int, kind: str) -> Callable[[Mapping[int, Release]], None]:
    def check(releases: Mapping[int, Release]) -> None:
        if number not in releases:
            raise ConfigError(f"there is no release {number}", hint="see: fedsecure node releases")
        next_state(releases[number], kind)

    return check
