"""The first page of a report, for somebody who knows nothing of the project: what was asked, who could attack, what was
found, how many people, how sure that is, and what to do. A verdict of the audit is told, never softened, and nothing
here calls a release harmless."""

from __future__ import annotations

from dataclasses import dataclass

from fedsecure_attacks.report import cheating
from fedsecure_attacks.report.advice import what_to_do
from fedsecure_attacks.report.figure import Report
from fedsecure_attacks.report.findings import Finding, findings, per_hundred, thousands
from fedsecure_attacks.report.settings import settings_found

__all__ = ["ATTACKERS", "SYMBOLS", "FirstPage", "first_page"]

#: What stands beside the verdict, so that it is not told by colour alone.
SYMBOLS = {"LEAK": "✖", "CONTRADICTS-ACCOUNTING": "✖", "NO-LEAK-DETECTED": "○", "INCONCLUSIVE": "?", "INVALID": "!"}
_FROM = {
    "files": "this set",
    "release": "this release",
    "mechanism": "sets that are made in this way",
    "spm": "what this training run shared",
    "canaries": "the sums of this run",
    "selftest": "what the self-test made",
}
_LEAKS = {
    "files": "This set gives away whose records it was made from.",
    "release": "This release gives away whose records it was made from.",
    "mechanism": "Sets that are made in this way give away whose records they were made from.",
    "spm": "This training run gives away whose records it used.",
    "canaries": "The sums of this run give away what single records contributed.",
    "selftest": "The attacks of this installation found a leak in made-up data.",
}
_HEADLINES = {
    "CONTRADICTS-ACCOUNTING": "The protection that was accounted for is not there.",
    "NO-LEAK-DETECTED": "These attacks detected no leak beyond what was accepted beforehand.",
    "INCONCLUSIVE": "This audit cannot answer the question: the evidence is too thin.",
    "INVALID": "This audit failed its own checks, so it answers nothing.",
}
#: (mode, verdict) -> the headline where no person was asked about.
_OTHER_HEADLINES = {
    ("selftest", "NO-LEAK-DETECTED"): "The attacks of this installation find what is planted, and nothing where "
    "nothing is.",
    ("selftest", "INVALID"): "The attacks of this installation do not do what they must. Do not rely on them.",
    ("canaries", "NO-LEAK-DETECTED"): "Nothing that was measured contradicts the protection that was accounted for.",
}
_QUESTION = (
    "Somebody holds {thing}, and also has one person's record: a picture, a row of a table. Can they find out whether "
    "that record was among those used here? Having been used can itself be private: it may say that somebody was a "
    "patient of this hospital."
)
_HOW = {
    "files": "The attacks were handed {members} records that the set was made from (members) and {others} of similar "
    "people that it was not made from, mixed and without saying which is which. Each attack gives every record a "
    "score. If members score higher, something of who was used shows.",
    "mechanism": "A set is a few made-up records that stand in for an institution's own. Sets were made again and "
    "again, each from a random half of the same people (its members), so that who was used is known exactly and "
    "nothing else differs. The attacks then had to say who was in which half. So this is an answer about the way of "
    "making sets, with these settings and so many people, not about one set.",
    "spm": "The run was repeated with random halves of the same people, so that who was used is known exactly. The "
    "attacks saw what is shared while training, and had to say who was in which half.",
    "canaries": "Test contributions that belong to nobody were put into the run. How well they can be found again in "
    "the sums says how much noise and masks really hide, against what was accounted for.",
    "selftest": "Leaks were planted on purpose into made-up data, and left out of other made-up data. The attacks had "
    "to tell the two apart. Nobody's records were used.",
}
_HOW["release"] = _HOW["files"].replace("the set was", "the release was")
ATTACKERS = {
    "T1": "Anybody who gets hold of what was released. They know how it is made, and have records of similar people. "
    "They do not see the training, nor anybody's record but the one they ask about.",
    "T2": "Another institution of the federation. It sees everything that is sent to all, and has records of its own "
    "that it can compare with.",
    "T3": "The coordinator of the federation, even while it does nothing wrong. It sees everything that this "
    "institution sends, in every round, and every model.",
    "T4": "A coordinator that cheats. It sees what this institution sends, and chooses what it sends to the "
    "institution so as to learn about single people.",
    "T5": "The strongest attacker there is: it knows everything but whether one record was used. Differential privacy "
    "promises to hold against it.",
}


@dataclass(frozen=True)
class FirstPage:
    """Paragraphs under each question; ``do`` is a list of steps."""

    headline: str
    asked: tuple[str, ...]
    attacker: tuple[str, ...]
    found: tuple[str, ...]
    people: tuple[str, ...]
    sure: tuple[str, ...]
    do: tuple[str, ...]


def first_page(report: Report) -> FirstPage:
    """In plain words, for every verdict and mode."""
    known = findings(report)
    return FirstPage(
        _headline(report), _asked(report), _attacker(report), _found(report, known), _people(report),
        _sure(report, known), what_to_do(report, known),
    )  # fmt: skip


def _headline(report: Report) -> str:
    if other := _OTHER_HEADLINES.get((report["mode"], report["verdict"])):
        return other
    return _LEAKS[report["mode"]] if report["verdict"] == "LEAK" else _HEADLINES[report["verdict"]]


def _asked(report: Report) -> tuple[str, ...]:
    mode, counts = report["mode"], report["counts"]
    members = counts.get("members_compared", counts.get("members"))
    others = counts.get("nonmembers_compared", counts.get("non_members", counts.get("nonmembers")))
    how = _HOW[mode].format(members=thousands(members), others=thousands(others))
    if mode in {"selftest", "canaries"}:
        return (how,)
    return (_QUESTION.format(thing=_FROM[mode]), how)


def _attacker(report: Report) -> tuple[str, ...]:
    model = report.get("threat_model", "T5" if report["mode"] == "canaries" else "T1")
    surface = f"What was attacked: {report['surface']}." if report.get("surface") else ""
    return tuple(words for words in (ATTACKERS[model], surface) if words)


_VERDICTS = {
    "NO-LEAK-DETECTED": "Nothing beyond what was accepted was found, and with so many people it would have been. That "
    "is a statement about these attacks and about a leak of that size. It does not show that nothing leaks.",
    "INCONCLUSIVE": "Neither that people can be picked out, nor that they cannot. This is no clearance: a leak may be "
    "there and be too small for so few people to show.",
    "INVALID": "Something in the audit itself is wrong, so none of its figures means anything. It says neither good "
    "nor bad of what was to be audited.",
    "CONTRADICTS-ACCOUNTING": "An attack found more than is possible if the accounted differential privacy were really "
    "in place. Noise was left out or is too small, contributions are not limited as planned, or a mask did not cancel.",
}
#: (mode, verdict) -> the same where no person was asked about.
_OTHER_VERDICTS = {
    ("canaries", "NO-LEAK-DETECTED"): "Noise, limits of contributions and masks were found as they were accounted for, "
    "as far as so many test contributions can tell. That does not prove the accounting.",
    ("canaries", "INCONCLUSIVE"): "The test contributions were too few to be found under the noise, so nothing can be "
    "said of it. This is no clearance: noise may be missing, and not show.",
    ("selftest", "NO-LEAK-DETECTED"): "Every question with a known answer was answered as it must be. That says "
    "nothing of any release: nobody's records were audited.",
    ("selftest", "INVALID"): "A question with a known answer was answered wrongly, so no answer of this installation "
    "can be relied on.",
}


def _found(report: Report, known: tuple[Finding, ...]) -> tuple[str, ...]:
    many, leak = len(report.get("sweep", [])) > 1, report["verdict"] == "LEAK"
    # A sweep is told by its settings: attacks and findings are those of the one that tells most.
    said = [] if many else [finding.words for finding in known[:3]]
    words = _OTHER_VERDICTS.get((report["mode"], report["verdict"])) or _VERDICTS.get(report["verdict"])
    if words is not None:
        said = [words]
    elif not said and not many:
        said = ["Members can be picked out, beyond what was accepted."]
    own = () if many and leak else (f"In the audit's own words: {report['reason']}",)
    return (*said, *settings_found(report), *cheating.first_words(report), *own)


def _people(report: Report) -> tuple[str, ...]:
    if report["verdict"] == "INVALID":
        return ("Not known: the audit failed.",)
    if report["mode"] in {"canaries", "selftest"}:
        return ("Nobody: no person's record was asked about.",)
    people = report.get("people")
    if people is None or people["exposed"] is None:
        why = (people or {}).get("reason") or "no single rate was measured here; see the table of attacks"
        return (f"Not counted: {why}.",)
    how = f" ({people['how']})" if people.get("how") else ""
    said = f"{thousands(people['exposed'])} of {thousands(people['of'])} members were picked out{how}."
    if (chance := people.get("by_chance")) is not None:
        usual = "nobody, most likely" if chance < 0.5 else f"about {chance:,.0f}"
        said += f" By chance alone it would be {usual}."
        if people["exposed"] > 0 and people.get("low") is not None and people["low"] <= chance:
            said += " So chance may explain all of it."
    if people.get("low") is not None and people.get("high") is not None:
        sure = per_hundred(people.get("confidence", 0.95))
        said += (
            f" Allowing for chance: {thousands(people['low'])} to {thousands(people['high'])} ({sure} % confidence)."
        )
    return (said,)


def _sure(report: Report, known: tuple[Finding, ...]) -> tuple[str, ...]:
    verdict = report["verdict"]
    said = [_leaking(report) or next((f.sure for f in known if f.sure), "")] if verdict == "LEAK" else []
    if verdict == "NO-LEAK-DETECTED":
        of = {"canaries": "canaries", "selftest": "questions"}.get(report["mode"], "people")
        said = [f"As sure as so many {of} allow. {_capital(report['reason'])}."]
    elif verdict == "INCONCLUSIVE":
        said = ["Not sure in either direction; that is what this verdict means."]
    elif verdict == "CONTRADICTS-ACCOUNTING":
        said = [_bound(report)]
    return (*(words for words in said if words), _controls(report))


def _leaking(report: Report) -> str:
    """Of the setting of a sweep that tells most."""
    people = report.get("people") or {}
    if len(report.get("sweep", [])) < 2 or not people.get("of") or people.get("low") is None:
        return ""
    sure = per_hundred(people.get("confidence", 0.95))
    said = f"With {sure} % confidence, under that setting at least {per_hundred(people['low'] / people['of'])} of 100 "
    return f"{said}members are picked out; chance gives {per_hundred(people.get('by_chance', 0.0) / people['of'])}."


def _bound(report: Report) -> str:
    bound = report.get("epsilon")
    if not bound or bound["lower"] is None or bound["accounted"] is None:
        return ""
    if bound["lower"] <= bound["accounted"]:  # noise or clip were measured, and are wrong all the same
        return f"{_capital(report['reason'])}."
    wrong = per_hundred(1 - bound.get("confidence", 0.95))
    return (
        f"Attacks show an epsilon of at least {bound['lower']:.2f} where {bound['accounted']:.2f} was accounted. Such "
        f"a statement is wrong in at most {wrong} of 100 audits."
    )


def _controls(report: Report) -> str:
    controls = report["controls"]
    failed = [name for name, control in controls.items() if not control["passed"]]
    if not controls:
        return "No built-in check was reached."
    if failed:
        return f"{len(failed)} of {len(controls)} built-in checks failed: {', '.join(failed)}."
    return (
        f"All {len(controls)} built-in checks came out as they must (questions with a known answer, such as finding "
        f"{'canaries that' if report['mode'] == 'canaries' else 'people who'} were planted on purpose)."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
