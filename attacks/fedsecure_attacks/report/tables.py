"""The tables of a report: what a template shows, as text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedsecure_attacks.report.figure import Report, labelled, rate_key

__all__ = [
    "attack_rows", "class_rows", "control_rows", "epsilon_rows", "flat", "gallery_rows", "measured_rows", "plain",
    "worst_rows",
]  # fmt: skip

#: Rows of the gallery and of anything flattened that a page shows; report.json holds all.
MOST_PAIRS, MOST_ROWS = 24, 400
#: A released record whose nearest member is at less than this share of the distance of the nearest other.
NEAR = 0.5
Row = tuple[str, ...]
#: What figures of ``measured`` are, by their names as ``flat`` has them.
_MEASURED = {
    "followed": "cosine of what was sent with the members' mean gradient (1: it follows it)",
    "nodes": "records of all institutions, for each record of the one attacked",
    "effective rank": "effective rank of gradients: in so many directions people differ",
    "moments cosine": "cosine of the mean features that the routing head implies with the members' own",
    "moments gap": "how far they are off, as a share of what members differ from others",
}


def plain(value: Any, digits: int = 3) -> str:
    """A value as people read it: "–" for none, ``digits`` significant digits, whole numbers whole."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        rounded = float(f"{value:.{digits}g}")
        return f"{rounded:,.0f}" if 100 <= abs(rounded) < 1e9 else f"{rounded:.{digits}g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def flat(value: Mapping[str, Any], above: str = "") -> Iterator[Row]:
    """Nested keys as rows of (path, value)."""
    for key, inner in value.items():
        path = f"{above} · {key}" if above else key
        if isinstance(inner, dict) and inner:
            yield from flat(inner, path)
        else:
            yield path.replace("_", " "), plain(inner, 6)


def control_rows(report: Report) -> list[Row]:
    """Name, outcome, what was found."""
    return [
        (name, "as it must be" if control["passed"] else "FAILED", control["found"])
        for name, control in report["controls"].items()
    ]


def _between(interval: Mapping[str, Any] | None) -> str:
    return f" ({interval['low']:.3f}–{interval['high']:.3f})" if interval else ""


def attack_rows(report: Report) -> tuple[Row, list[Row]]:
    """Columns and rows, the primary attack first."""
    fpr = report["plan"].get("thresholds", {}).get("fpr", 0.01)
    columns = ("attack", "area (95 %)", f"picked out at {fpr:g} (95 %)", "on top of all others", "members / others")
    ordered = sorted(report["attacks"].items(), key=lambda item: (item[0] != report["primary"], item[0]))
    return columns, [_attack_row(labelled(report, name), attack, fpr) for name, attack in ordered]


def _attack_row(label: str, attack: Mapping[str, Any], fpr: float) -> Row:
    key = rate_key(attack, fpr)
    if key is None:
        rate = "–"
    elif attack[key] is None:
        rate = attack.get(f"{key}_reason", "not measurable")
    else:
        rate = f"{attack[key]:.3f}{_between(attack.get(f'{key}_interval'))}"
    area = "–" if attack["auc"] is None else f"{attack['auc']:.3f}{_between(attack.get('auc_interval'))}"
    top = "–"
    if attack.get("tail_test_count") is not None:
        top = plain(attack["tail_test_count"])
        if (p := attack.get("tail_test_p_adjusted", attack.get("tail_test_p"))) is not None:
            top += f" (p = {p:.1g})"
    people = f"{plain(attack.get('members'))} / {plain(attack.get('nonmembers'))}"
    return label, area, rate, top, people


def class_rows(report: Report) -> list[dict[str, Any]]:
    """One for each class; ``red`` where a rule is broken, with the word beside it."""
    rows = []
    for entry in report.get("classes", []):
        released = entry.get("released")
        crowded = released is not None and 2 * released > entry["members"] > 0
        outcome = "enough"
        if crowded:
            outcome = "MORE RECORDS RELEASED than half its members"
        if entry["below_minimum"]:
            outcome = "BELOW THE MINIMUM" + (", and more records released than half of it" if crowded else "")
        rows.append({
            "name": str(entry["class"]), "members": plain(entry["members"]), "released": plain(released),
            "n_min": plain(entry["n_min"]), "outcome": outcome, "red": outcome != "enough",
        })  # fmt: skip
    return rows


def worst_rows(report: Report) -> list[Row]:
    """At most twenty."""
    return [
        (
            entry.get("record") or f"no. {number}", str(entry["class"]), plain(entry["n"]),
            plain(entry.get("percentile"), 4), plain(entry.get("attacks")), plain(entry.get("size"), 2),
        )
        for number, entry in enumerate(report.get("worst", []), 1)
    ]  # fmt: skip


def gallery_rows(report: Report) -> list[dict[str, Any]]:
    """One for each released record that is shown."""
    return [_pair(entry) for entry in report.get("gallery", [])[:MOST_PAIRS]]


def _pair(entry: Mapping[str, Any]) -> dict[str, Any]:
    member, other = entry["d_member"], entry["d_nonmember"]
    ratio = member / other if member is not None and other else None
    reading, red = "–", False
    if member == 0:
        reading, red = "THIS IS A MEMBER'S RECORD", True
    elif ratio is not None:
        red = ratio < NEAR
        reading = "MUCH NEARER to a member" if red else "nearer to a member" if ratio < 1 else "nearer to another"
    alts = {"released": "released record", "member": "its nearest member", "nonmember": "its nearest other person"}
    pictures = entry.get("pictures", {})
    return {
        "image": plain(entry["image"]), "class": str(entry["class"]), "d_member": plain(member, 2),
        "d_nonmember": plain(other, 2), "ratio": plain(ratio, 2), "reading": reading, "red": red,
        "pictures": [(f"{alt} {entry['image']}", pictures[kind]) for kind, alt in alts.items() if kind in pictures],
        "member_id": plain(entry.get("member_id")), "nonmember_id": plain(entry.get("nonmember_id")),
    }  # fmt: skip


def measured_rows(report: Report) -> list[Row]:
    """Single figures, in words where there are some, then what canaries showed in each view."""
    views = {
        name: {key: value for key, value in view.items() if key != "bounds"}
        for name, view in report.get("canaries", {}).items()
    }
    if report.get("shared_noise") is not None:
        views["noise in shares"] = {"over what was accounted": report["shared_noise"]}
    return [(_MEASURED.get(name, name), value) for name, value in (*flat(report.get("measured", {})), *flat(views))]


def epsilon_rows(report: Report) -> list[Row]:
    """What was seen, accounted, and could have been seen."""
    bound = report.get("epsilon")
    if not bound:
        return []
    sure = f"{100 * bound.get('confidence', 0.95):g} %"
    method = f" ({bound['method']})" if bound.get("method") else ""
    rows: Sequence[tuple[str, Any, str]] = (
        ("shown by attacks, at least", bound["lower"], f"with {sure} confidence no smaller epsilon fits{method}"),
        ("estimated", bound.get("estimate"), "the best guess, without a guarantee"),
        ("accounted", bound["accounted"], "what the privacy ledger was charged; attacks may show no more"),
        ("could have been shown, at most", bound["largest"],
         "what a perfect attack on so many records would give: a small value above is no sign of slack"),
        ("delta", bound.get("delta"), "of the accounted guarantee"),
    )  # fmt: skip
    return [(name, plain(value), words) for name, value, words in rows if value is not None or name == "accounted"]
