"""What may be said of the answers to queries about a private run: they follow from what its exchanges paid for.

The heads that a node answers with were trained inside the mechanism, as the parameters that left it: post-processing of
either costs nothing, and tells of a record no more than all that its data set has paid for until then.
"""

from __future__ import annotations

from fedsecure.errors import PrivacyBudgetExceeded, StoreError
from fedsecure.plan import Plan
from fedsecure.privacy.labels import NONE, Guarantee
from fedsecure_node.log.budget import check_not_rolled_back
from fedsecure_node.log.releaselog import ReleaseLog
from fedsecure_node.spending.purse import Purse
from fedsecure_node.store.countbook import CountBook

__all__ = ["AnswerLabels"]


class AnswerLabels:
    """Of one node's runs, by the records that each of them counted."""

    def __init__(self, purse: Purse, counts: CountBook, log: ReleaseLog) -> None:
        self._purse, self._counts, self._log = purse, counts, log

    def __call__(self, plan: Plan, digest: str) -> Guarantee:
        """Of an answer that is given now. Nothing is claimed without [privacy], nor where the ledger does not tell all
        that was paid: it is gone, damaged, or older than the log."""
        counted = self._counts.find(digest)
        if plan.privacy is None or counted is None or not self._purse.is_there:
            return NONE
        try:
            ledger = self._purse.ledger()
            check_not_rolled_back(ledger, self._log)
            paid = [entry for entry in ledger.entries(counted.data_set) if entry.what.plan == digest]
            delta = next((entry.delta for entry in reversed(paid) if entry.delta is not None), None)
            return NONE if delta is None else self._purse.label(counted.data_set, plan, delta)
        except (PrivacyBudgetExceeded, StoreError):
            return NONE
