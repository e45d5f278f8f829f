"""What to do after each verdict, and what would change it: steps for the person who decides, most urgent first, in the
terms of what was audited: a set, a way of making sets, a run, its accounting."""

from __future__ import annotations

from collections.abc import Mapping

from fedsecure_attacks.report import cheating
from fedsecure_attacks.report.figure import Report
from fedsecure_attacks.report.findings import Finding, thousands
from fedsecure_attacks.report.settings import settings_to_do

__all__ = ["what_to_do"]

_MEND = {
    "bits": 'Start images from noise, never from records (initialisation "noise"); let the policy allow nothing else.',
    "copy": 'Start images from noise, never from records (initialisation "noise"): these are people, or nearly so.',
    "average": "Do not start images from averages of a few records; averaging alone hides nobody. Start from noise.",
    "mean": "Use differential privacy: noise is the one thing that bounds every attack. More records in each class and "
    "fewer steps make images tell less of their class means, and promise nothing.",
    "model": "The model trained on the set remembers its people: more records in each class, or differential privacy.",
}
_MEND_RUN = (
    "Let each update tell less of single people: sums that are masked, over more institutions, and more records in "
    "each of them; or differential privacy, which alone bounds every attack."
)
_CLOSING = "Audit again after every change, and every new release: a report holds for exactly what its hashes name."
_DISCLOSED = "Stop the run, and treat what it shared so far as disclosed."
_FIRST_LEAK = {
    "spm": _DISCLOSED,
    "files": "Do not release it. If it has left already, treat that as a disclosure of personal data, and tell whoever "
    "answers for data protection.",
}
_FIRST_LEAK["release"] = _FIRST_LEAK["files"]

#: mode -> what none detected means for the decision.
_DECIDE = {
    "files": "This audit does not stand against the release. The decision stays yours: weigh what a leak just below "
    "the stated size would mean for these people.",
    "mechanism": "This audit does not stand against releasing sets that are made in this way, from so many people. The "
    "decision stays yours: weigh what a leak just below the stated size would mean for them.",
    "spm": "This audit does not stand against the run. The decision stays yours: weigh what a leak just below the "
    "stated size would mean for these people.",
}
_DECIDE["release"] = _DECIDE["files"]
_KEEP = (
    "Keep this report with {thing}. It holds for exactly what its hashes name; other settings, another round or other "
    "people need an audit of their own."
)
_THING = {"files": "the release", "release": "the release", "mechanism": "the plan", "spm": "the plan"}
_STRONGER = (
    "What would change it: a stronger attack, or the same ones with more people. Only differential privacy bounds "
    "attacks that nobody has thought of."
)
_FITS = (
    "The accounted epsilon stays the promise: this audit does not stand against it, and does not prove it. A bound far "
    "below what was accounted is usual.",
    "Keep this report with the plan. It holds for this version, these settings and one node; audit again after every "
    "change of any of them.",
    "What would change it: more canaries, more rounds, or another node (--canaries, --rounds, --node).",
)

#: mode -> what to hold while nothing is answered.
_HOLD = {
    "files": "Hold the release.",
    "release": "Hold the release.",
    "mechanism": "Release no set that is made in this way yet.",
    "spm": "Hold the run, and what it made.",
    "canaries": "Count the accounting as not checked; it is neither shown nor refuted.",
    "selftest": "Use no audit of this installation until this is mended.",
}
_NOT_NOTHING = "Not answered is not the same as nothing found."
_SOME = (
    "With the usual limits (2 of 100 members, while 1 of 100 others is wrongly picked), it takes some 1,000 members "
    "and as many others."
)
_MORE = {
    "files": "Audit with more people.",
    "release": "Audit with more people: hold more of them out (holdout in the policy's table [audit]).",
    "mechanism": "Audit with more shadows (--shadows), or a larger pool: “fedsecure audit plan” says how many.",
    "spm": "Audit with more runs (--halves), or a node with more records (--node).",
}
_LESS = {
    "files": "If there are no more people: release less (fewer images, fewer classes), or use differential privacy, "
    "whose promise needs no audit to hold.",
    "spm": "If that is not to be had: mask the sums, over more institutions, or use differential privacy, whose "
    "promise needs no audit to hold.",
}
_LESS["release"] = _LESS["mechanism"] = _LESS["files"]
_MORE_CANARIES = (
    "Audit with more canaries (--canaries): half as many as the node sends values, at most, so a larger model has room "
    "for more.",
    "Audit more rounds of the plan (--rounds), or a node with more records (--node): each canary is then seen more "
    "often, and under less noise.",
)

_PEOPLE_CONTROLS = {
    "planted": "The audit did not find people whom it had planted itself. Check that members and set have the same "
    "scale, and that they are not all alike.",
    "blind": "Members and the others differ by more than membership: another place, time, device or way of choosing. "
    "Take others from the same source as the members.",
    "oracle": "The attack did not behave as theory says on these records. Check for records that repeat, for a scale "
    "that differs between the files, and for references from elsewhere.",
}
_RANDOMISED = {
    "planted": _PEOPLE_CONTROLS["planted"].replace("members and set have the same scale", "records are within range"),
    "null": "Something was told of people who were not in. Check for records that repeat, in the pool and outside of "
    "it.",
    "direction": "An attack ranks members below others, which no leak explains. Check for records that repeat or are "
    "in both parts.",
    "oracle": "The attack did not behave as theory says on these records. Check for records that repeat, and for "
    "people outside of the pool who are of another population.",
}
#: mode -> control, by the first word of its name -> what to check when it failed.
_CONTROLS: Mapping[str, Mapping[str, str]] = {
    "files": _PEOPLE_CONTROLS,
    "release": _PEOPLE_CONTROLS,
    "mechanism": _RANDOMISED,
    "spm": _RANDOMISED,
    "canaries": {
        "masks": "Masks do not do what they must: run no plan with masked sums on this installation until that is "
        "mended, for sums may be wrong, or open to whoever receives them.",
        "planted": "Canaries do not arrive as they were put in. Check that what the node sends comes from the steps "
        "that the plan says, and nothing else is done to it.",
        "blind": "Canaries that were left out are seen. Check that what the node sends comes from the steps that the "
        "plan says, and nothing else is done to it.",
    },
}


def what_to_do(report: Report, known: tuple[Finding, ...]) -> tuple[str, ...]:
    """Steps for this verdict."""
    if report["mode"] == "selftest":
        return _selftest(report)
    steps = {
        "LEAK": _leak, "NO-LEAK-DETECTED": _clear, "INCONCLUSIVE": _open, "INVALID": _invalid,
        "CONTRADICTS-ACCOUNTING": _contradiction,
    }[report["verdict"]]  # fmt: skip
    return (*steps(report, known), *cheating.advice(report))


def _selftest(report: Report) -> tuple[str, ...]:
    if report["verdict"] == "NO-LEAK-DETECTED":
        return ("Nothing. Run it again after every installation and upgrade.",)
    return (_HOLD["selftest"], "Install again, and report what fails.")


def _leak(report: Report, known: tuple[Finding, ...]) -> tuple[str, ...]:
    mode = report["mode"]
    if mode == "spm":
        return (_DISCLOSED, _MEND_RUN, _CLOSING)
    if mode == "mechanism":
        return (*settings_to_do(report), _CLOSING)
    kinds = list(dict.fromkeys(finding.kind for finding in known)) or ["mean"]
    mends = [_MEND[kind] for kind in kinds if not (kind == "copy" and "bits" in kinds)]
    mends = [*mends[:2], *_small_classes(report)]
    return (_FIRST_LEAK.get(mode, _DISCLOSED), *mends, _CLOSING)


def _small_classes(report: Report) -> tuple[str, ...]:
    small = sum(entry["below_minimum"] for entry in report.get("classes", []))
    if not small:
        return ()
    classes = "the class" if small == 1 else f"the {small} classes"
    return (f"Release nothing of {classes} with too few people (table of classes).",)


def _clear(report: Report, known: tuple[Finding, ...]) -> tuple[str, ...]:
    mode = report["mode"]
    if mode == "canaries":
        return _FITS
    return (_DECIDE[mode], _KEEP.format(thing=_THING[mode]), _STRONGER)


def _open(report: Report, known: tuple[Finding, ...]) -> tuple[str, ...]:
    mode, needed = report["mode"], report.get("needed")
    hold = f"{_HOLD[mode]} {_NOT_NOTHING}"
    if mode == "canaries":
        return (hold, *_MORE_CANARIES)
    many = _SOME
    if needed:
        many = (
            f"About {thousands(needed['members'])} members and {thousands(needed['nonmembers'])} others would give an "
            "answer if nothing leaks."
        )
    return (hold, *_small_classes(report), f"{_MORE[mode]} {many}", _LESS[mode])


def _invalid(report: Report, known: tuple[Finding, ...]) -> tuple[str, ...]:
    mode = report["mode"]
    failed = [name.partition(",")[0] for name, control in report["controls"].items() if not control["passed"]]
    mends = [_CONTROLS[mode][name] for name in dict.fromkeys(failed) if name in _CONTROLS[mode]]
    return (
        f"{_HOLD[mode].rstrip('.')}. Read none of the figures below.",
        *(mends or ["Mend what the audit's own words above name."]),
        "Then audit again.",
    )


def _contradiction(report: Report, known: tuple[Finding, ...]) -> tuple[str, ...]:
    return (
        "Stop the run, and release nothing more of it.",
        "Treat what has left already as not protected by differential privacy, whatever its label says.",
        "Have checked: is noise of the planned size really added, are contributions limited to the planned size, do "
        "masks cancel? Then audit again.",
    )
