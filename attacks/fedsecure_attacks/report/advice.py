"""What to do after each verdict, and what would change it: steps for the person who decides, most urgent first."""

from __future__ import annotations

from fedsecure_attacks.report import cheating
from fedsecure_attacks.report.figure import Report
from fedsecure_attacks.report.findings import Finding, thousands

__all__ = ["what_to_do"]

_MEND = {
    "bits": 'Start images from noise, never from records (initialisation "noise"); let the policy allow nothing else.',
    "copy": 'Start images from noise, never from records (initialisation "noise"): these are people, or nearly so.',
    "average": "Do not start images from averages of a few records; averaging alone hides nobody. Start from noise.",
    "mean": "Make the images tell less of their class means: fewer images a class, more records in each class, fewer "
    "steps; or differential privacy, which alone bounds every attack.",
    "model": "The model trained on the set remembers its people: more records in each class, or differential privacy.",
}
_CONTROLS = {
    "planted": "The audit did not find people whom it had planted itself. Check that members and set have the same "
    "scale, and that they are not all alike.",
    "blind": "Members and the others differ by more than membership: another place, time, device or way of choosing. "
    "Take others from the same source as the members.",
    "oracle": "The attack did not behave as theory says on these records. Check for records that repeat, for a scale "
    "that differs between the files, and for references from elsewhere.",
}
_CLOSING = "Audit again after every change, and every new release: a report holds for exactly what its hashes name."


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
    return ("Use no audit of this installation until this is mended.", "Install again, and report what fails.")


def _leak(report: Report, known: tuple[Finding, ...]) -> tuple[str, ...]:
    first = {
        "mechanism": "Do not release sets that are made in this way with settings that leak; the tables say which do.",
        "spm": "Stop the run, and treat what it shared so far as disclosed.",
        "canaries": "Stop the run, and treat what it shared so far as disclosed.",
    }.get(
        report["mode"],
        "Do not release it. If it has left already, treat that as a disclosure of personal data, and tell whoever "
        "answers for data protection.",
    )
    kinds = list(dict.fromkeys(finding.kind for finding in known)) or ["mean"]
    mends = [_MEND[kind] for kind in kinds if not (kind == "copy" and "bits" in kinds)]
    small = [entry for entry in report.get("classes", []) if entry["below_minimum"]]
    mends = mends[:2]
    if small:
        classes = "the class" if len(small) == 1 else f"the {len(small)} classes"
        mends.append(f"Release nothing of {classes} with too few people (table of classes).")
    return (first, *mends, _CLOSING)


def _clear(report: Report, known: tuple[Finding, ...]) -> tuple[str, ...]:
    return (
        "This audit does not stand against the release. The decision stays yours: weigh what a leak just below the "
        "stated size would mean for these people.",
        "Keep this report with the release. It holds for exactly what its hashes name; other settings, another round "
        "or other people need an audit of their own.",
        "What would change it: a stronger attack, or the same ones with more people. Only differential privacy bounds "
        "attacks that nobody has thought of.",
    )


def _open(report: Report, known: tuple[Finding, ...]) -> tuple[str, ...]:
    needed = report.get("needed")
    if needed:
        more = (
            f"Audit with more people: about {thousands(needed['members'])} members and "
            f"{thousands(needed['nonmembers'])} others would give an answer if nothing leaks."
        )
    else:
        more = (
            "Audit with more people. With the usual limits (2 of 100 members, while 1 of 100 others is wrongly "
            "picked), it takes some 1,000 members and as many others."
        )
    return (
        "Hold the release. Not answered is not the same as nothing found.",
        more,
        "If there are no more people: release less (fewer images, fewer classes), or use differential privacy, whose "
        "promise needs no audit to hold.",
    )


def _invalid(report: Report, known: tuple[Finding, ...]) -> tuple[str, ...]:
    failed = [name for name, control in report["controls"].items() if not control["passed"]]
    mends = [_CONTROLS[name] for name in failed if name in _CONTROLS]
    return (
        "Hold the release, and read none of the figures below.",
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
