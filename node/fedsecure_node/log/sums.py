"""What is noted of the sums that a masked half goes into: confirmed, announced, or over without either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedsecure_node.log.chain import ANNOUNCED, CLOSED, CONFIRMED
from fedsecure_node.log.decisions import note
from fedsecure_node.log.releaselog import ReleaseLog
from fedsecure_node.log.releases import Release

__all__ = ["SumNotes"]


class SumNotes:
    """Every note is on the disk when it returns. Each raises ``LocalProtocolError`` where the release's state does not
    allow it."""

    def __init__(self, log: ReleaseLog) -> None:
        self._log = log

    def confirm(self, release: Release, *, transcript3: bytes, survivors: Sequence[str]) -> None:
        """Note that this node's confirmation of ``survivors`` is about to leave: t others can then open their sum,
        without asking this node for shares."""
        note(self._log, release.number, CONFIRMED, _sum(transcript3, survivors))

    def announce(self, release: Release, *, transcript3: bytes, survivors: Sequence[str]) -> None:
        """Note that the coordinator announced the sum over ``survivors``, which this node is one of: it was read."""
        note(self._log, release.number, ANNOUNCED, _sum(transcript3, survivors))

    def close(
        self,
        release: Release,
        reason: str,
        *,
        went_on: bool,
        transcript3: bytes = b"",
        survivors: Sequence[str] = (),
    ) -> None:
        """Note that no further session of a release comes. ``went_on``: whether the run did so without it.
        ``survivors``: of the sum that was announced in its stead, if one was."""
        other = {"announced": _sum(transcript3, survivors)} if survivors else {}
        note(self._log, release.number, CLOSED, {"reason": reason, "went_on": went_on, **other})

    def open(self, plan_digest: str = "") -> list[Release]:
        """Releases of a run, or of all, of whose summed half it is not known yet what becomes of it."""
        return [r for r in self.of(plan_digest) if r.is_summed_half_open]

    def of(self, plan_digest: str = "") -> list[Release]:
        """Releases of a run, or of all, whose summed half goes under masks, in the log's order."""
        found = [r for r in self._log.releases().values() if r.is_masked]
        return [r for r in found if plan_digest in ("", r.key.plan)]


def _sum(transcript3: bytes, survivors: Sequence[str]) -> dict[str, Any]:
    return {"transcript3": transcript3.hex(), "survivors": list(survivors)}
