"""What a run's progress consists of: the one value that a round machine changes, and that is stored."""

from __future__ import annotations

from pydantic import Field

from fedsecure.config import Settings
from fedsecure.rounds.events import Phase

__all__ = ["RoundState"]


class RoundState(Settings):
    """All that a run's progress consists of; JSON through ``RoundMachine.snapshot``.

    ``round``, ``exchange`` (an index) and ``attempt`` count from 0. ``cohort``: nodes whose contribution this exchange
    waits for or has; ``contributed``: node -> digest. ``token``: the deadline of the current phase; ``settle``: the one
    of an open cohort, while it runs. ``skipped``: the rounds (from 0) whose sum was lost.
    """

    phase: Phase = Phase.JOINING
    round: int = Field(0, ge=0)
    exchange: int = Field(0, ge=0)
    attempt: int = Field(0, ge=0)
    present: tuple[str, ...] = ()
    left: dict[str, str] = {}
    cohort: tuple[str, ...] = ()
    contributed: dict[str, str] = {}
    token: int = Field(0, ge=0)
    settle: int | None = None
    skipped: tuple[int, ...] = ()
    last_token: int = Field(0, ge=0)
    reason: str = ""
    missing: tuple[str, ...] = ()
    detail: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more can happen."""
        return self.phase in (Phase.COMPLETED, Phase.ABORTED)
