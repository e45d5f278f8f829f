"""What a coordinator is told when a node will not go on: the rule or the stage, never a record or a value."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedsecure.errors import (
    AuditError,
    DataError,
    FedSecureError,
    LocalProtocolError,
    PolicyError,
    PrivacyBudgetExceeded,
    RemoteProtocolError,
    SecAggError,
)
from fedsecure.secagg.protocol.aborts import abort_bytes, parse_abort

__all__ = ["forbidden", "public_reason", "rules_in"]

_DIVERGED = re.compile(r"^training diverged: tensor ([A-Za-z0-9._-]{1,200}): ")
_TENSOR = re.compile(r"^tensor ([A-Za-z0-9._-]{1,200}): ")
_DECIDED = re.compile(r"^release \d+ is refused by a person: ")
#: Rules that speak of the records themselves, or of one that is no longer there.
_OF_RECORDS = {"release.min_changed_records", "broadcast.max_left_out"}
_IN_USE = re.compile(r"^data set [0-9a-f]{1,64}: another daemon")
_RULE = re.compile(r"(?:^|[ ;])((?:plans|condensation|release|broadcast|prediction|privacy)\.[a-z_]+): ")


def rules_in(text: str) -> list[str]:
    """Names of the policy's rules that an error's text speaks of."""
    return _RULE.findall(text)


def forbidden(rules: Sequence[str]) -> str:
    """That the institution does not allow it, and by which rules, if it is rules: names, no values."""
    names = ", ".join(dict.fromkeys(rules))
    return f"the institution's policy forbids it (rule {names})" if names else "the institution does not allow it"


def public_reason(error: Exception, stage: str) -> str:
    """One line for the coordinator. Details that could speak of records, and the values that the institution's policy
    sets, stay at the node: a broken rule is told by its name alone."""
    text = str(error)
    if isinstance(error, RemoteProtocolError):
        return f"{stage}: {text}"
    is_rule = isinstance(error, PolicyError)
    if isinstance(error, AuditError) or (is_rule and (_DECIDED.match(text) or _OF_RECORDS & set(rules_in(text)))):
        return f"{stage}: the institution withholds its release"  # neither who decided it, nor why
    if is_rule:
        return f"{stage}: {forbidden(rules_in(text))}"
    if isinstance(error, SecAggError):
        return f"{stage}: secure aggregation: {parse_abort(abort_bytes(error)).detail}"
    if isinstance(error, PrivacyBudgetExceeded):
        return f"{stage}: the privacy budget of the institution's data set does not pay for it"
    if isinstance(error, DataError) and (diverged := _DIVERGED.match(text)):
        return f"{stage}: training diverged: tensor {diverged.group(1)} is not finite or out of the schema's range"
    if isinstance(error, LocalProtocolError) and _IN_USE.match(text):
        return f"{stage}: another daemon of the institution works on its records; this one takes no part"
    tensor = _TENSOR.match(text)
    if isinstance(error, DataError) and tensor:
        return f"{stage}: tensor {tensor.group(1)} is not what the plan's schema allows"
    if isinstance(error, DataError):
        return f"{stage}: the institution's records cannot take part"
    kind = type(error).__name__ if isinstance(error, FedSecureError) else "a fault"
    return f"{stage}: failed at the node ({kind})"
