"""What became of contributions under masks, once the coordinator asks for the next one or the run is over."""

from __future__ import annotations

from collections.abc import Iterable

from fedsecure.errors import RemoteProtocolError, SecAggError
from fedsecure.method import Method
from fedsecure.secagg.machines.memory import already_released
from fedsecure.secagg.protocol.results import SessionResult, parse_result
from fedsecure.text import counted
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.egress import Gate
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.log.chain import ANNOUNCED, CLOSED, CONFIRMED, MASKED, UNMASKED
from fedsecure_node.log.differences import difference_lines, differs_from_another_run
from fedsecure_node.log.maskedrounds import known_sums
from fedsecure_node.log.releases import Release
from fedsecure_node.masking.announced import Place, announced_place, other_survivors
from fedsecure_node.progress import Reporter

__all__ = ["close_sums", "no_contribution", "say_differing", "settle_sums"]

#: States in which masked vectors of a release may have left.
_LEFT = ("masked", "confirmed", "unmasked", "announced", "unread", "unsure")


def settle_sums(gate: Gate, reporter: Reporter, work: pb.Exchange, method: Method, key: ExchangeKey, node: str) -> None:
    """Note what ``work`` tells of the contributions before it: that the coordinator announces a sum with this node in
    it, that their exchange is over, or that its round was skipped. What is announced is noted as it is, whether or not
    it then leads to a refusal; but nothing that this node knows to be false. Raises ``RemoteProtocolError`` when a
    later sum was announced before, or when the sum is said to hold what never left this node, to be over other nodes
    than it confirmed or unmasked by the same T3, or is another than those that it confirmed, and it confirmed all that
    it sent vectors for."""
    ours = gate.sums.of(key.plan)
    if not ours:
        return
    result = _announced(work, method, key)
    place = None if result is None else announced_place(result, method)
    told = place is not None or not work.result
    skipped = [old for old in ours if told and _is_skipped(old, key, place)]
    _check_not_taken_back(skipped, key)
    if result is not None:
        _check_survivors((r for r in ours if _exchange(r.key) == place), result, key)
    about = _last_of(ours, place)
    if result is not None and about is not None and node in result.survivors:
        if about.state not in _LEFT:
            raise RemoteProtocolError(
                f"{key}: the announced sum is said to hold release {about.number}, whose summed half never left",
                hint="the coordinator lost its state or misbehaves; ask its operator; nothing was computed",
            )
        if about.state not in ("unmasked", "announced"):
            _announce(gate, reporter, about, result)
            _check_confirmed(about, result, key)
    for old in gate.sums.open(key.plan):
        if _place(old.key) < _place(key):
            if old.number in {release.number for release in skipped}:
                _skip(gate, reporter, old)
            else:
                _close(gate, reporter, old, key, result if about is not None and old.number == about.number else None)


def close_sums(gate: Gate, plan_digest: str, reason: str, *, went_on: bool = False) -> None:
    """Note that no sum with the open contributions of a run comes any more. ``went_on``: whether the run was completed
    without them."""
    for old in gate.sums.open(plan_digest):
        gate.sums.close(old, reason, went_on=went_on)


def say_differing(gate: Gate, reporter: Reporter, release: Release) -> None:
    """Warn when the last two sums of the exchange of ``release`` differ by one node alone, and when its sum and one of
    another run do."""
    sums = known_sums(gate.sums.of())
    own = [r for r in sums if (r.plan, r.exchange) == (release.key.plan, release.key.exchange)]
    for line in difference_lines(own[-2:]):
        _say(reporter, "differs", release, line)
    if not own or any(before.survivors == own[-1].survivors for before in own[:-1]):
        return  # it was said of that one
    if found := differs_from_another_run(own[-1], sums):
        other, node = found
        text = f"warning: its sum and that of {other} differ by node {node} alone: where both began from nearly the"
        _say(reporter, "differs", release, f"{text} same model, the difference is about what {node} sent")


def no_contribution(name: str, key: ExchangeKey, release: Release | None) -> SecAggError:
    """Why there is no session about ``release`` of the plan ``name``: ALREADY_RELEASED for a sum that was announced,
    REPLAYED for an exchange that is over, BAD_CONFIG for any other."""
    state = "there is none" if release is None else release.words()
    if release is not None and release.state == "announced":
        return already_released(key.exchange, key.round)
    code = "REPLAYED" if release is not None and release.state in ("unsummed", "unread", "unsure") else "BAD_CONFIG"
    return SecAggError(f"{code}: {name}, {key}: no contribution waits for a masked sum: {state}")


def _announced(work: pb.Exchange, method: Method, key: ExchangeKey) -> SessionResult | None:
    """``None`` also for one that is malformed or of no exchange before ``key``, for which the run is left."""
    try:
        result = parse_result(work.result) if work.result else None
    except SecAggError:
        return None
    place = None if result is None else announced_place(result, method)
    return None if place is None or place >= _exchange(key) else result


def _place(key: ExchangeKey) -> tuple[int, int, int]:
    """Where an exchange comes in its run."""
    return key.round, key.step, key.attempt


def _exchange(key: ExchangeKey) -> Place:
    """It without the attempt."""
    return key.round, key.step


def _last_of(ours: Iterable[Release], place: Place | None) -> Release | None:
    """This node's last contribution to an exchange."""
    found = [r for r in ours if _exchange(r.key) == place]
    return found[-1] if found else None


def _is_skipped(old: Release, key: ExchangeKey, place: Place | None) -> bool:
    """Whether the exchange of ``old`` is over without a sum, when the last one before ``key`` was at ``place``."""
    return _exchange(old.key) < _exchange(key) and (place is None or place < _exchange(old.key))


def _check_not_taken_back(skipped: Iterable[Release], key: ExchangeKey) -> None:
    """Raise ``RemoteProtocolError`` when a sum of one of ``skipped`` was announced before."""
    for old in skipped:
        if any(e.kind == ANNOUNCED or (e.kind == CLOSED and "announced" in e.body) for e in old.events):
            raise RemoteProtocolError(
                f"{key}: the coordinator announced a sum of round {old.key.round + 1} {old.key.exchange} before, and "
                "goes on as if there was none",
                hint="the coordinator lost its state or misbehaves; ask its operator; nothing was computed",
            )


def _skip(gate: Gate, reporter: Reporter, old: Release) -> None:
    gate.sums.close(old, "its round was skipped", went_on=False)
    _say(reporter, "skipped", old, "its round was skipped: the coordinator announces no sum of it")


def _announce(gate: Gate, reporter: Reporter, about: Release, result: SessionResult) -> None:
    gate.sums.announce(about, transcript3=result.transcript3, survivors=result.survivors)
    nodes = counted(len(result.survivors), "node")
    _say(reporter, "announced", about, f"the coordinator read the sum over {nodes} that it is inside")
    say_differing(gate, reporter, about)


def _check_survivors(contributions: Iterable[Release], result: SessionResult, key: ExchangeKey) -> None:
    """T3 fixes U3, and this node saw both when it confirmed or unmasked a sum."""
    for event in (event for release in contributions for event in release.events):
        if event.kind not in (CONFIRMED, UNMASKED) or event.body["transcript3"] != result.transcript3.hex():
            continue
        if tuple(event.body["survivors"]) != result.survivors:
            raise other_survivors(key)


def _check_confirmed(about: Release, result: SessionResult, key: ExchangeKey) -> None:
    """T3, against the sessions of ``about``: one that ended before the node confirmed it may be the one announced."""
    sent = sum(1 for event in about.events if event.kind == MASKED)
    confirmed = [event.body["transcript3"] for event in about.events if event.kind == CONFIRMED]
    if len(confirmed) == sent and result.transcript3.hex() not in confirmed:
        raise RemoteProtocolError(
            f"{key}: the announced sum is another than the one that this node confirmed",
            hint="the coordinator lost its state or misbehaves; ask its operator; nothing was computed",
        )


def _close(gate: Gate, reporter: Reporter, old: Release, key: ExchangeKey, other: SessionResult | None) -> None:
    """``other``: what was announced of its exchange, without this node."""
    gate.sums.close(
        old,
        "its exchange is over",
        went_on=_exchange(key) != _exchange(old.key),
        transcript3=other.transcript3 if other else b"",
        survivors=other.survivors if other else (),
    )
    if other is not None:
        _say(reporter, "left-out", old, f"the sum over {counted(len(other.survivors), 'node')} is without it")
        say_differing(gate, reporter, old)


def _say(reporter: Reporter, event: str, release: Release, text: str) -> None:
    reporter.say(event, f"release {release.number}: {text}", release=release.number, plan=release.key.plan)
