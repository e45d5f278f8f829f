"""What a coordinator that cheats could reach, as a report shows it: sentences, and tables of traps, forged averages and
differencing. The schema leaves the block open, so nothing in it is taken for granted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedsecure_attacks.report.figure import Report
from fedsecure_attacks.report.tables import Row, plain

__all__ = ["Table", "advice", "first_words", "sentences", "tables"]

#: The entry of ``defences`` without any.
NONE = "none"
_TRAPPED = ("trap", "area (95 %)", "picked out at 0.01 (95 %)", "one round isolates one person", "verdict")


@dataclass(frozen=True, slots=True)
class Table:
    """Of ``rows``, each as long as ``columns``."""

    title: str
    columns: Row
    rows: tuple[Row, ...]


def first_words(report: Report) -> tuple[str, ...]:
    """For the first page, where it was asked."""
    defences = _part(report.get("active"), "defences")
    if not defences:
        return ()
    open_, isolated = _leaks(defences.get(NONE)), _isolates(defences.get(NONE))
    asked = "Asked besides: what could a coordinator learn that cheats, by models made to single one person out? "
    if not open_:
        return (f"{asked}No more than was accepted, with the models that were tried.",)
    said = "after one round it knows whether that person is in" if isolated else "more than was accepted"
    kept = [name for name, kinds in defences.items() if name != NONE and not _leaks(kinds)]
    held = f"Nothing more than was accepted under: {', '.join(kept)}" if kept else "No defence that was tried held"
    return (f"{asked}Without a defence, {said}. {held}.",)


def advice(report: Report) -> tuple[str, ...]:
    """A step for whoever decides, where traps told something."""
    if not _leaks(_part(report.get("active"), "defences").get(NONE)):
        return ()
    return (
        "Against a coordinator that cheats: differential privacy, which bounds every model it could send. The node's "
        "limit on records that stick out (broadcast.max_spread) makes traps worse, and promises nothing.",
    )


def sentences(active: Any) -> tuple[str, ...]:
    """The audit's own."""
    said = active.get("says") if isinstance(active, Mapping) else None
    return tuple(line for line in said if isinstance(line, str)) if isinstance(said, list) else ()


def tables(active: Any) -> tuple[Table, ...]:
    """Those that have rows."""
    found = (
        Table("Models made to single people out, by defence", ("defence", *_TRAPPED), tuple(_defended(active))),
        Table("The same, without a defence", _TRAPPED, tuple(_besides(active))),
        Table(
            "Averages that the coordinator makes up: is one person read off the images?",
            ("what is sent", "area (95 %)", "sets"), tuple(_forged(active)),
        ),
        Table(
            "Asked again after one person was erased",
            ("second answer", "people named", "of", "error of what was recovered"), tuple(_erased(active)),
        ),
    )  # fmt: skip
    return tuple(table for table in found if table.rows)


def _part(block: Any, name: str) -> dict[str, Any]:
    inner = block.get(name) if isinstance(block, Mapping) else None
    return dict(inner) if isinstance(inner, Mapping) else {}


def _kinds(defence: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The traps against a defence."""
    for name, one in defence.items() if isinstance(defence, Mapping) else ():
        if name != "setting" and isinstance(one, Mapping):
            yield name, one


def _leaks(defence: Any) -> bool:
    return any(one.get("verdict") == "LEAK" for _, one in _kinds(defence))


def _isolates(defence: Any) -> bool:
    return any(one.get("one_round_isolates_one_person") is True for _, one in _kinds(defence))


def _trapped(name: str, one: Mapping[str, Any]) -> Row:
    area, rate = _ranged(one, "auc", "auc_interval"), _ranged(one, "tpr_at_fpr_0.01", "tpr_at_fpr_0.01_interval")
    if one.get("why"):
        return name, "–", plain(one["why"]), "no", plain(one.get("verdict"))
    return name, area, rate, plain(one.get("one_round_isolates_one_person")), plain(one.get("verdict"))


def _ranged(one: Mapping[str, Any], value: str, interval: str) -> str:
    between = _part(one, interval)
    around = f" ({plain(between.get('low'))} to {plain(between.get('high'))})" if between else ""
    return plain(one.get(value)) + around


def _defended(active: Any) -> Iterator[Row]:
    for name, defence in _part(active, "defences").items():
        for kind, one in _kinds(defence):
            yield name, *_trapped(kind, one)


def _besides(active: Any) -> Iterator[Row]:
    traps = _part(active, "trap_model")
    for key, name in (("many_at_once", "several people by one model"), ("another_person", "somebody else (control)")):
        if one := _part(traps, key):
            yield _trapped(name, one)


def _forged(active: Any) -> Iterator[Row]:
    for name, one in _kinds(_part(active, "trap_statistics")):
        yield name, _ranged(one, "auc", "auc_interval"), plain(one.get("condensings"))


def _erased(active: Any) -> Iterator[Row]:
    for name, one in _kinds(_part(active, "differencing")):
        named, candidates = f"{plain(one.get('named'))} of {plain(one.get('erasures'))}", plain(one.get("candidates"))
        yield f"under {name}", named, candidates, plain(one.get("largest_relative_error"))
