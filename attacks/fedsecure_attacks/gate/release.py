"""The audit of one release against the people that it was made from, and people held out of everything.

*quick*, before a release leaves: the attacks of ``audit files`` under few networks, on as many people as take seconds.
*full*, after it left or was withheld: under more networks, with a model trained on it, on everybody. *copies*, when
nobody is held out: records that are released as they are, which can be found and never excluded. In all three, one
record that leaves as it is makes a leak.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
from scipy.stats import norm

from fedsecure_attacks.files import PRIMARY, FilesAudit, Profile, audit_files
from fedsecure_attacks.images.resemblance import Copies, Nearness, released_as_they_are
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.statistics.power import power_of
from fedsecure_attacks.strictjson import dump, files_report
from fedsecure_attacks.verdict import Control, Thresholds, Verdict, Word

__all__ = ["LEAST_HELD_OUT", "MEMBERS", "ReleaseAudit", "ReleaseProfile", "audit_release"]

Kind = Literal["quick", "full", "copies"]
#: Random networks of a quick and of a full audit.
NETWORKS = {"quick": 4, "full": 8, "copies": 0}
#: The most members and held-out people that a quick audit compares, drawn at random; copies are sought among all.
QUICK_MEMBERS, QUICK_HELD_OUT = 3000, 6000
#: What the report calls all members of the classes that were released, whoever was drawn of them.
MEMBERS = "members of its classes"
#: With fewer people held out, members are compared with nobody: that would measure nothing, and its controls fail.
LEAST_HELD_OUT = 20


@dataclass(frozen=True, slots=True)
class ReleaseProfile(Profile):
    """How much is computed, and what is accepted. ``min_power``: the least chance to see a leak of twice the accepted
    rate with which an audit may say that it found none."""

    kind: Kind = "quick"
    min_power: float = 0.8

    @classmethod
    def of(cls, kind: Kind, thresholds: Thresholds, *, seed: int, min_power: float) -> ReleaseProfile:
        """As much as ``kind`` takes."""
        return cls(NETWORKS[kind], kind == "full", seed, thresholds, kind, min_power)

    def to_json(self) -> dict[str, Any]:
        """What is fixed before anything is measured."""
        return {"mode": "release", "primary": PRIMARY, **asdict(self)}


@dataclass(frozen=True)
class ReleaseAudit:
    """The result. ``compared``: whether members were compared with people held out."""

    audit: FilesAudit = field(repr=False)
    compared: bool

    @property
    def verdict(self) -> Verdict:
        """What it says at its end."""
        return self.audit.verdict

    @property
    def kind(self) -> str:
        """How much was computed: ``quick``, ``full`` or ``copies``."""
        return str(self.audit.profile.to_json()["kind"])

    def report(self) -> dict[str, Any]:
        """As strict JSON has it; the same inputs and seed give the same bytes."""
        surface = {"mode": "release", "threat_model": "T1", "surface": "condensed images"}
        return {**files_report(self.audit), **surface}

    def report_bytes(self) -> bytes:
        """The report as it is kept."""
        return dump(self.report()).encode()


def audit_release(
    released: Labelled,
    members: Labelled,
    held_out: Labelled,
    profile: ReleaseProfile,
    progress: Callable[[str], None] = lambda what: None,
) -> ReleaseAudit:
    """Audit ``released``, in the units of the records. Of ``members``, whom it was made from, and ``held_out``, only
    classes that it holds are compared; copies are sought among all."""
    nearness = Nearness.of(members)
    found = [released_as_they_are(released, people, nearness) for people in (members, held_out)]
    copies = sum(each.nearly for each in found)
    near, others = _of_classes(members, released), _of_classes(held_out, released)
    compared = len(others) >= LEAST_HELD_OUT and profile.kind != "copies"
    if compared:
        audit = _compared(released, near, others, profile, progress)
    else:
        audit = _copies_alone(released, members, len(others), replace(profile, networks=0, kind="copies"))
    audit = replace(audit, inputs={**audit.inputs, MEMBERS: near.digest()})
    if copies:
        said = "1 record of this node is in it as it is" if copies == 1 else f"{copies} records of this node are in it"
        known = {key: value for key, value in audit.counts.items() if not key.startswith("nonmembers_released")}
        counts = {**known, "members_released_bit_for_bit": found[0].exact, "people_released_or_nearly": copies}
        verdict = Verdict(Word.LEAK, f"{said}{' as they are' * (copies > 1)}, or nearly")
        told = _most(_copied(found, len(members), len(held_out)), audit.evidence.get("people"))
        audit = replace(audit, verdict=verdict, counts=counts, evidence={**audit.evidence, "people": told})
    return ReleaseAudit(audit, compared)


def _compared(
    released: Labelled,
    members: Labelled,
    others: Labelled,
    profile: ReleaseProfile,
    progress: Callable[[str], None],
) -> FilesAudit:
    notes: tuple[str, ...] = ()
    sizes = members.counts()
    if profile.kind == "quick" and (len(members) > QUICK_MEMBERS or len(others) > QUICK_HELD_OUT):
        rng = np.random.default_rng(profile.seed)
        notes = (f"drawn at random of {len(members)} members and {len(others)} people held out",)
        members, others = _drawn(members, QUICK_MEMBERS, rng), _drawn(others, QUICK_HELD_OUT, rng)
    audit = audit_files(members, others, released, None, profile, progress, sizes=sizes)
    audit = replace(audit, notes=(*audit.notes, *notes))
    if audit.verdict.word is not Word.NO_LEAK_DETECTED:
        return audit
    n1, n0 = audit.counts["members_compared"], audit.counts["nonmembers_compared"]
    power = power_of(n1, n0, profile.thresholds, _twice_accepted(profile.thresholds))
    said = f"a leak of twice the accepted rate would be seen with a chance of {power:.2f}"
    if power < profile.min_power:
        verdict = Verdict(Word.INCONCLUSIVE, f"too little power: {said} (asked for: {profile.min_power:g})")
        return replace(audit, verdict=verdict)
    return replace(audit, notes=(*audit.notes, said))


def _copied(found: Sequence[Copies], members: int, held_out: int) -> dict[str, Any]:
    """``people`` of a report, of those who are in a release as they are, or nearly. Whoever is in it while held out was
    used all the same."""
    count, out = found[0].nearly, found[1].nearly
    how = "released as they are, or nearly" + (f"; {out:,} of them should have been held out" if out else "")
    return {"exposed": count + out, "of": members + (held_out if out else 0), "how": how, "by_chance": 0.0}


def _most(copied: dict[str, Any], compared: Mapping[str, Any] | None) -> dict[str, Any]:
    """Whichever tells more people beyond what chance gives: copies, or the attacks that compared people."""
    if compared is None or compared["exposed"] is None:
        return copied
    beyond = float(compared["exposed"]) - float(compared["by_chance"])
    return dict(compared) if beyond > copied["exposed"] else copied


def _twice_accepted(thresholds: Thresholds) -> float:
    """d' of an attack whose rate is twice what is accepted, at the false-positive rate of ``thresholds``."""
    rate = min(2 * thresholds.tpr, 0.99)
    return max(0.0, float(norm.ppf(rate) - norm.ppf(thresholds.fpr)))


def _copies_alone(released: Labelled, members: Labelled, others: int, profile: ReleaseProfile) -> FilesAudit:
    why = "nobody is held out" if not others else f"only {others} people of its classes are held out"
    found = Verdict(Word.INCONCLUSIVE, f"no copy of a record was found, and {why}: more cannot be told")
    control = _planted(released, members)
    if not control.passed:
        found = Verdict(Word.INVALID, f"control {control.name}: {control.said}")
    counts = {"members": len(members), "released": len(released), "held_out": others}
    inputs = {part.name: part.digest() for part in (members, released)}
    notes = (f"{why}: copies alone were sought",)
    return FilesAudit(found, profile, counts, controls=(control,), notes=notes, inputs=inputs)


def _planted(released: Labelled, members: Labelled) -> Control:
    """Whether a member that is put into the set is found."""
    if not len(released) or not len(members):
        return Control("planted", False, "there are no records to compare")
    x = released.x.copy()
    x[0] = members.x[len(members) // 2]
    found = released_as_they_are(Labelled(released.name, x, released.y), members, Nearness.of(members)).exact
    return Control("planted", found >= 1, f"1 planted member: {min(found, 1)} found as it is")


def _of_classes(people: Labelled, released: Labelled) -> Labelled:
    return people.take(np.isin(people.y, np.unique(released.y)))


def _drawn(people: Labelled, most: int, rng: np.random.Generator) -> Labelled:
    if len(people) <= most:
        return people
    return people.take(np.sort(rng.choice(len(people), most, replace=False)))
