"""Sums that differ by one node alone, as this node's log tells: of one run, or of two runs of the same cohort. Where
what nodes computed changed little between them, the difference is about what that node sent.

That exact repeats go into no second run, the node sees to itself (``masking.repeats``). Models that nearly are the same
it cannot tell from others; so all pairs over runs count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from fedsecure.text import counted
from fedsecure_node.log.maskedrounds import MaskedRound

__all__ = ["apart_over_runs", "difference_lines", "differing", "differs_from_another_run"]


def differing(rounds: Iterable[MaskedRound]) -> Iterator[tuple[MaskedRound, MaskedRound, str]]:
    """Pairs of successive sums of one run and exchange whose nodes differ by one alone, and that node."""
    last: dict[tuple[str, str], MaskedRound] = {}
    for each in rounds:
        before = last.get((each.plan, each.exchange))
        if before is not None and (node := _apart(before, each)):
            yield before, each, node
        last[each.plan, each.exchange] = each


def apart_over_runs(rounds: Iterable[MaskedRound]) -> dict[str, int]:
    """Node -> how many pairs of sums, of two runs but of one cohort, method and exchange, differ by it alone."""
    found: dict[tuple[str, ...], dict[frozenset[str], Counter[str]]] = {}
    for each in rounds:
        found.setdefault(_kind(each), {}).setdefault(frozenset(each.survivors), Counter())[each.plan] += 1
    pairs: Counter[str] = Counter()
    for sums in found.values():
        for nodes, runs in sums.items():
            for node in nodes:
                fewer = sums.get(nodes - {node})
                if fewer is not None:
                    same = sum(count * fewer[plan] for plan, count in runs.items())
                    pairs[node] += runs.total() * fewer.total() - same
    return {node: count for node, count in sorted(pairs.items()) if count}


def differs_from_another_run(latest: MaskedRound, rounds: Iterable[MaskedRound]) -> tuple[MaskedRound, str] | None:
    """The last of ``rounds`` that is of another run and differs from ``latest`` by one node alone, and that node."""
    found = None
    for each in rounds:
        if each.plan != latest.plan and _kind(each) == _kind(latest) and (node := _apart(each, latest)):
            found = each, node
    return found


def difference_lines(rounds: Iterable[MaskedRound]) -> list[str]:
    """For people: by which nodes sums differ, and what that shows. Empty when by none."""
    sums = list(rounds)
    lines = []
    for node, pairs in sorted(Counter(node for _, _, node in differing(sums)).items()):
        lines.append(
            f"warning: {counted(pairs, 'pair')} of successive rounds differ by node {node} alone: where values change "
            f"little from round to round, the difference of two sums is about what {node} sent"
        )
    for node, pairs in apart_over_runs(sums).items():
        lines.append(
            f"warning: {counted(pairs, 'pair')} of sums in two runs differ by node {node} alone: where both began from "
            f"nearly the same model, the difference is about what {node} sent"
        )
    return lines


def _apart(one: MaskedRound, other: MaskedRound) -> str:
    """The one node by which two sums differ, or ``""``."""
    apart = set(one.survivors) ^ set(other.survivors)
    return apart.pop() if len(apart) == 1 else ""


def _kind(each: MaskedRound) -> tuple[str, ...]:
    return each.cohort, each.method, each.exchange
