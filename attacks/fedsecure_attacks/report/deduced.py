"""What the figures of a report say of its verdict: the audits' own rules, on the figures that are told. A verdict may
rest on more than a report holds, but never stands against what it does hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from scipy.stats import chi2

from fedsecure_attacks.canaries.results import ERRORS, PRIMARY, SLACK, SURE
from fedsecure_attacks.report.figure import Report, rate_key, short
from fedsecure_attacks.report.findings import accepted
from fedsecure_attacks.verdict import CELL_ALPHA, RATE_ALPHA, TAIL_ALPHA, Word

__all__ = ["against_verdict"]

_LEAK, _CLEAR, _OPEN = Word.LEAK.value, Word.NO_LEAK_DETECTED.value, Word.INCONCLUSIVE.value
_INVALID, _CONTRADICTION = Word.INVALID.value, Word.CONTRADICTS_ACCOUNTING.value
_OF_PEOPLE = (_LEAK, _CLEAR, _OPEN, _INVALID)
#: mode -> the verdicts that its audit can end with.
VERDICTS: dict[str, tuple[str, ...]] = {
    "files": _OF_PEOPLE, "release": _OF_PEOPLE, "mechanism": _OF_PEOPLE, "spm": _OF_PEOPLE,
    "canaries": (_CONTRADICTION, _CLEAR, _OPEN, _INVALID), "selftest": (_CLEAR, _INVALID),
}  # fmt: skip
#: The order in which one cell decides for all of a sweep.
_FIRST = (_INVALID, _LEAK, _OPEN, _CLEAR)


def against_verdict(report: Report) -> Iterator[str]:
    """What stands against the verdict of ``report``, which follows the schema: one line each, naming the figure."""
    mode, word = report["mode"], report["verdict"]
    if word not in VERDICTS[mode]:
        yield f"an audit of mode {mode} never ends with that"
    else:
        yield from _RULES[mode](report, word)


def _failed(report: Report) -> list[str]:
    return [f"a control was not passed: controls.{short(n)}" for n, c in report["controls"].items() if not c["passed"]]


def _people(report: Report, word: str) -> Iterator[str]:
    """One release, or the halves of a run (``verdict.decide``)."""
    certain, told = _certain(report), _released(report)
    judged = {n: a for n, a in report["attacks"].items() if n not in report.get("hidden_by_masks", ())}
    leaks = [said for name, attack in judged.items() for said in _leaks(report, name, attack)]
    if certain:
        if word != _LEAK:
            yield certain[0]
    elif failed := _failed(report):
        if word != _INVALID and not (word == _LEAK and told):
            yield failed[0]
    elif word == _INVALID:
        if judged and not _turned(judged):
            yield "no control failed, and no attack puts members below others"
    elif leaks:
        if word != _LEAK:
            yield leaks[0]
    elif word == _LEAK and not told:
        yield "no figure is above what was accepted"
    elif word == _CLEAR:
        yield from _unclear(report, judged)


def _turned(judged: Mapping[str, Any]) -> bool:
    """Whether an attack ranks members below others."""
    between = [a.get("auc_interval") for a in judged.values() if a.get("judged_by_rates") is not False]
    return any(each["high"] < 0.5 for each in between if each)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _released(report: Report) -> bool:
    """Whether people are counted who are in what was released."""
    counts = report["counts"].items()
    return any("released_" in k and not k.startswith("nonmembers_") and _number(v) > 0 for k, v in counts)


def _certain(report: Report) -> list[str]:
    """Records in a release that nobody who is out shares."""
    counts = report["counts"]
    outside = ("nonmembers_released_or_nearly", "nonmembers_released_bit_for_bit")
    found = []
    if _number(counts.get("people_released_or_nearly")) > 0:
        found.append("counts.people_released_or_nearly is not zero")
    if _number(counts.get("members_released_bit_for_bit")) > 0 and not any(_number(counts.get(k)) for k in outside):
        found.append("counts.members_released_bit_for_bit is not zero")
    return found


def _leaks(report: Report, name: str, attack: Mapping[str, Any]) -> Iterator[str]:
    limits, at = accepted(report), f"attacks.{short(name)}"
    if (p := attack.get("tail_test_p_adjusted")) is not None and p < TAIL_ALPHA:
        yield f"{at}.tail_test_p_adjusted is {p:.2g} (a leak below {TAIL_ALPHA:g})"
    if attack.get("judged_by_rates") is False:
        return
    key = rate_key(attack, limits["fpr"])
    between, p = attack.get(f"{key}_interval"), attack.get(f"{key}_p_adjusted")
    if between and p is not None and p < RATE_ALPHA and between["low"] > limits["tpr"]:
        yield f"{at}.{key} is at least {between['low']:.3g} (accepted: {limits['tpr']:g})"
    if (joint := attack.get("auc_interval_joint")) and joint["low"] > limits["auc"]:
        yield f"{at}.auc is at least {joint['low']:.3g} (accepted: {limits['auc']:g})"


def _unclear(report: Report, judged: Mapping[str, Any]) -> Iterator[str]:
    """Why a leak cannot be excluded."""
    limits, counts = accepted(report), report["counts"]
    primary = judged.get(report["primary"])
    if primary is None:
        yield f"attacks.{short(report['primary'])}, which decides, is missing"
        return
    yield from _open_rate(f"attacks.{short(report['primary'])}", primary, limits)
    for name, attack in judged.items():
        between = attack.get("auc_interval")
        if attack.get("judged_by_rates") is not False and between and between["high"] > limits["auc"]:
            yield f"attacks.{short(name)}.auc may be up to {between['high']:.3g} (accepted: {limits['auc']:g})"
    least = min(_number(counts.get("members")), _number(counts.get("non_members")))
    if least and (share := _number(counts.get("in_both_pools")) / least) > limits["twins"]:
        yield f"counts.in_both_pools is a share of {share:.2g} (accepted: {limits['twins']:g})"
    if report["mode"] == "files" and any(entry["below_minimum"] for entry in report.get("classes", ())):
        yield "classes: something is released of one with too few members"


def _open_rate(at: str, attack: Mapping[str, Any], limits: Mapping[str, float]) -> Iterator[str]:
    key = rate_key(attack, limits["fpr"])
    between = None if key is None else attack.get(f"{key}_interval")
    if key is None or attack[key] is None or not between:
        yield f"{at}: its rate was not measurable"
    elif between["high"] > limits["tpr"]:
        yield f"{at}.{key} may be up to {between['high']:.3g} (accepted: {limits['tpr']:g})"


def _mechanism(report: Report, word: str) -> Iterator[str]:
    """All cells of a sweep (``mechanism.deciding``); attacks are those of the cell that tells most."""
    cells, failed = report.get("sweep", []), _failed(report)
    if failed:
        if word != _INVALID:
            yield failed[0]
        return
    if not cells:
        if word != _INVALID or report["attacks"]:
            yield "sweep: no cell was judged"
        return
    words = [cell.get("verdict") for cell in cells]
    for number, each in enumerate(words):
        if each not in _FIRST:
            yield f"sweep.{number}.verdict is none of {', '.join(_FIRST)}"
            return
    must = next(each for each in _FIRST if each in words)
    if word != must:
        yield f"sweep.{words.index(must)}.verdict is {must}"
    if must in {_OPEN, _CLEAR}:
        yield from (said for name, attack in report["attacks"].items() for said in _cell_leaks(report, name, attack))
    for number, cell in enumerate(cells):
        if words[number] == _CLEAR:
            yield from _unclear_cell(report, f"sweep.{number}", cell)


def _cell_leaks(report: Report, name: str, attack: Mapping[str, Any]) -> Iterator[str]:
    key = rate_key(attack, accepted(report)["fpr"])
    for p_key, between, alpha in (
        (f"{key}_p_adjusted", f"{key}_interval", CELL_ALPHA),
        ("auc_p_adjusted", "auc_interval", CELL_ALPHA),
        ("tail_test_p_adjusted", None, TAIL_ALPHA),
    ):
        p = attack.get(p_key)
        if isinstance(p, int | float) and p < alpha and (between is None or attack.get(between)):
            yield f"attacks.{short(name)}.{p_key} is {p:.2g} (a leak below {alpha:g})"


def _unclear_cell(report: Report, at: str, cell: Mapping[str, Any]) -> Iterator[str]:
    limits, attacks = accepted(report), cell["attacks"]
    primary = attacks.get(report["primary"])
    if primary is None or primary.get(f"tpr_at_fpr_{limits['fpr']:g}") is None or primary.get("high_tpr") is None:
        yield f"{at}.attacks.{short(report['primary'])}, which decides, has no rate"
    elif primary["high_tpr"] > limits["tpr"]:
        yield f"{at}.attacks.{short(report['primary'])}.high_tpr is {primary['high_tpr']:.3g}"
    for name, attack in attacks.items():
        if attack.get("high") is None or attack["high"] > limits["auc"]:
            high = "unknown" if attack.get("high") is None else f"{attack['high']:.3g}"
            yield f"{at}.attacks.{short(name)}.high is {high} (accepted: {limits['auc']:g})"


def _canaries(report: Report, word: str) -> Iterator[str]:
    """Epsilon alone (``verdict.decide_accounting``)."""
    views = report.get("canaries", {})
    arrivals = [said for name, view in views.items() for said in _arrival(report, name, view)]
    failed, beyond = [*_failed(report), *arrivals], _beyond(report)
    if failed:
        if word != _INVALID:
            yield failed[0]
        return
    few = [n for n, v in views.items() if v["arrived_error"] is None or v["arrived_error"] * ERRORS > 1]
    must = _CONTRADICTION if beyond else _OPEN if len(few) == len(views) else _CLEAR
    if word != must:
        why = beyond or [f"canaries.{short(name)}.arrived_error: too few canaries" for name in few]
        yield why[0] if must != _CLEAR else "no figure of it says so"


def _arrival(report: Report, name: str, view: Mapping[str, Any]) -> Iterator[str]:
    """What the control that canaries arrive must have said."""
    error = view["arrived_error"]
    near = error is None or abs(view["arrived"] - 1) <= max(ERRORS * error, 10 * SLACK) * (1 + 1e-9)
    control = report["controls"].get(f"planted, {name}")
    if not near and control is not None and control["passed"]:
        yield f"canaries.{short(name)}.arrived is {view['arrived']:.3g}, and controls.planted, {short(name)} was passed"


def _beyond(report: Report) -> list[str]:
    """In what more is shown than was accounted."""
    found = []
    for name, view in report.get("canaries", {}).items():
        at = f"canaries.{short(name)}"
        found += [
            f"{at}.bounds.{number}.lower is {pair['lower']:.3g}, where {pair['accounted']:.3g} was accounted"
            for number, pair in enumerate(view["bounds"])
            if pair["accounted"] is not None and pair["lower"] > pair["accounted"]
        ]
        if (many := view["inside"] + view["out"]) and _most_noise(view["noise"], many) < 1 - SLACK:
            found.append(f"{at}.noise is {view['noise']:.3g} of what was accounted, of {many} canaries")
        if name == PRIMARY and view["clip"] > 1 + SLACK:
            found.append(f"{at}.clip is {view['clip']:.3g}")
    bound = report.get("epsilon", {})
    if bound.get("lower") is not None and bound.get("accounted") is not None and bound["lower"] > bound["accounted"]:
        found.append(f"epsilon.lower is {bound['lower']:.3g}, where {bound['accounted']:.3g} was accounted")
    most = report.get("shared_noise_most")
    if most is not None and most < 1:
        found.append(f"shared_noise_most is {most:.3g}")
    return found


def _most_noise(noise: float, many: int) -> float:
    """What noise of this standard deviation in ``many`` values is at most, as ``canaries.audit`` has it."""
    return float(noise * math.sqrt(many / chi2.ppf((1 - SURE) / 2, many)))


def _selftest(report: Report, word: str) -> Iterator[str]:
    failed = _failed(report)
    if failed and word != _INVALID:
        yield failed[0]
    elif word == _INVALID and not failed:
        yield "all answers are as they must be"


_RULES: dict[str, Callable[[Report, str], Iterator[str]]] = {
    "files": _people, "release": _people, "spm": _people, "mechanism": _mechanism, "canaries": _canaries,
    "selftest": _selftest,
}  # fmt: skip
