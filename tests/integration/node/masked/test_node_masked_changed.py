"""The node daemon against a coordinator that changes one message of a session, over real mutual TLS: the session ends
in its named abort before anything more leaves, and a fresh one completes."""

from __future__ import annotations

import pytest
from attack_steps import (
    READY,
    another_vector,
    changed_share,
    colluders_key,
    confirmations_of_another_list,
    copied_key,
    forged_confirmation,
    key_of_another_model,
    kinds,
    swapped_key,
    two_confirmations,
    two_keys,
    two_sharers,
    two_survivors,
)

from fedsecure.secagg.protocol.aborts import AbortCode

CHANGES = [
    (1, swapped_key, "BAD_SIGNATURE"), (1, colluders_key, "BAD_KEY"), (1, key_of_another_model, "BAD_TRANSCRIPT"),
    (1, copied_key, "BAD_KEY"), (1, two_keys, "TOO_FEW_NODES"), (2, two_sharers, "TOO_FEW_NODES"),
    (2, changed_share, "BAD_SHARE"), (3, two_survivors, "TOO_FEW_NODES"), (3, another_vector, "BAD_VECTOR"),
    (4, two_confirmations, "TOO_FEW_NODES"), (4, forged_confirmation, "BAD_SIGNATURE"),
    (4, confirmations_of_another_list, "BAD_TRANSCRIPT"),
]  # fmt: skip


@pytest.mark.parametrize(("at", "change", "code"), CHANGES, ids=lambda v: getattr(v, "__name__", str(v)))
def test_a_changed_message_ends_the_session_and_a_fresh_one_completes(
    site, script, cohort, masked_plan, session_of, at, change, code
):
    def make(plan, work):
        session = session_of(cohort, plan, work)
        session.mutate = lambda leg, message: change(cohort, message).SerializeToString() if leg == at else message
        return session

    script.sums.make = make
    script.offer(plan := masked_plan())
    script.sums.ask(plan)
    node = site.start()
    session = node.until(lambda: script.sums.session and script.sums.session.aborted and script.sums.session)
    assert session.aborted.code is AbortCode[code]
    assert [leg for leg, _ in session.answers] == list(range(at))
    assert kinds(site) == [*READY, *["masked", "confirmed"][: max(at - 2, 0)]]
    script.sums.sessions.append(session_of(cohort, plan, session.work, 1))
    node.until(lambda: script.sums.session.sums)
    node.end()
    assert node.error is None, node.text
    assert "Traceback" not in node.text
    assert kinds(site)[-3:] == ["masked", "confirmed", "unmasked"]
