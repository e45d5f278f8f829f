"""``audit files``: membership in any condensed or synthetic set, whoever made it, from four files.

Who was in is not randomised here, so there is a blind baseline; and only one set was released, so nothing can be
calibrated on others: the primary endpoint is mean-tracing with a threshold for each record (A6q), fixed beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import hypergeom

from fedsecure.errors import AuditError
from fedsecure_attacks import controls
from fedsecure_attacks.embedding import random_networks, values_of
from fedsecure_attacks.evidence import Gathered, Shown, gather
from fedsecure_attacks.images.copies import average_scan, copy_scan, exact_copies
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.images.likelihood import GROUPS, image_likelihood
from fedsecure_attacks.images.neighbour import raw_neighbour
from fedsecure_attacks.images.quantile import with_quantile
from fedsecure_attacks.images.tracing import mean_tracing
from fedsecure_attacks.images.trained import loss_attack
from fedsecure_attacks.judging import measure
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates, Labelled, Pools, without_twins
from fedsecure_attacks.reporthead import plan_sha256
from fedsecure_attacks.statistics.scores import Floats
from fedsecure_attacks.verdict import TAIL_ALPHA, AttackResult, Control, Thresholds, Verdict, Word, decide

__all__ = ["PRIMARY", "FilesAudit", "Profile", "Scored", "audit_files"]

#: The endpoint that decides whether no leak was found.
PRIMARY = "mean-tracing-quantile"
NOTHING_SHOWN = Shown()
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Profile:
    """How much is computed. ``networks``: random networks of the embedding. ``with_loss``: whether a model is trained
    on the released set."""

    networks: int = 8
    with_loss: bool = True
    seed: int = 0
    thresholds: Thresholds = field(default_factory=Thresholds)

    def to_json(self) -> dict[str, Any]:
        """What is fixed before anything is measured."""
        return {"mode": "files", "primary": PRIMARY, **asdict(self)}

    def digest(self) -> str:
        """SHA-256 (hex) of it."""
        return plan_sha256(self.to_json())


@dataclass(frozen=True)
class FilesAudit:
    """The result. ``results`` is empty when nothing could be measured. ``notes``: what a reader should know."""

    verdict: Verdict
    profile: Profile
    counts: dict[str, int]
    results: tuple[AttackResult, ...] = ()
    controls: tuple[Control, ...] = ()
    notes: tuple[str, ...] = ()
    inputs: dict[str, str] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict, repr=False)
    scored: Scored | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Scored:
    """Every candidate's scores by attack, (n,): membership data themselves. For a file of the auditor's own alone."""

    candidates: Candidates
    inside: Flags
    scores: dict[str, Floats]


def audit_files(
    members: Labelled,
    nonmembers: Labelled,
    released: Labelled,
    reference: Labelled | None,
    profile: Profile,
    progress: Callable[[str], None] = lambda what: None,
    *,
    shown: Shown = NOTHING_SHOWN,
) -> FilesAudit:
    """Audit ``released``. Without ``reference`` every other non-member of each class teaches the population instead,
    and is no candidate then. What makes the audit impossible is its verdict, INVALID, never an exception. ``shown``:
    what of people the evidence may hold."""
    parts = [members, nonmembers, released, *([] if reference is None else [reference])]
    inputs = {part.name: part.digest() for part in parts}
    counts = {part.name.replace("-", "_").replace(" ", "_"): len(part) for part in parts}
    try:
        return _audit(_Given(members, nonmembers, released, reference, profile, inputs, counts, shown), progress)
    except AuditError as error:
        return FilesAudit(Verdict(Word.INVALID, str(error)), profile, counts, inputs=inputs)


@dataclass(frozen=True)
class _Given:
    members: Labelled
    nonmembers: Labelled
    released: Labelled
    reference: Labelled | None
    profile: Profile
    inputs: dict[str, str]
    counts: dict[str, int]
    shown: Shown


def _audit(given: _Given, progress: Callable[[str], None]) -> FilesAudit:
    profile, rng = given.profile, np.random.default_rng(given.profile.seed)
    _check_shapes(given)
    members, nonmembers, twins, inner = without_twins(given.members, given.nonmembers)
    notes, doubts = _about_twins(given, twins, inner, profile.thresholds)
    if not len(members) or not len(nonmembers):
        raise AuditError("no candidates are left once the records that are in both pools are taken out")
    nonmembers, reference = _population(given.reference, nonmembers, notes)
    pools = Pools(members, nonmembers, reference)
    candidates, inside = pools.candidates(rng)
    notes += _about_classes(given.released, candidates, reference)
    seen = Outsider(given.released, reference, members.counts())
    progress("embedding")
    frames = _frames(given, members, nonmembers, reference)
    asked = (
        controls.planted(seen, candidates, inside, rng),
        controls.blind(seen, candidates, inside, frames["networks"]),
        controls.oracle(pools, candidates, inside, frames["networks"]),
    )
    scores = _scores(seen, candidates, frames, profile, progress)
    results = measure(scores, inside, profile.thresholds)
    copies = exact_copies(seen, Candidates(candidates.x[inside], candidates.y[inside]))
    by_chance = exact_copies(seen, Candidates(candidates.x[~inside], candidates.y[~inside]))
    certain = _certain_copies(copies, by_chance, inside, notes)
    verdict = decide(results, asked, profile.thresholds, primary=PRIMARY, facts={}, doubts=doubts, copies=certain)
    progress("evidence")
    measured = Gathered(
        given.released, members, candidates, inside, scores, results, frames["networks"], verdict, PRIMARY, certain
    )
    counts = {
        **given.counts, "members_compared": len(members), "nonmembers_compared": len(nonmembers),
        "reference_used": len(reference), "in_both_pools": twins, "members_that_repeat": inner,
        "members_released_bit_for_bit": copies, "nonmembers_released_bit_for_bit": by_chance,
    }  # fmt: skip
    return FilesAudit(
        verdict, profile, counts, results, asked, tuple(notes), given.inputs,
        gather(measured, profile.thresholds, given.shown), Scored(candidates, inside, scores),
    )  # fmt: skip


def _population(reference: Labelled | None, nonmembers: Labelled, notes: list[str]) -> tuple[Labelled, Labelled]:
    """(candidates who are out, references)."""
    if reference is not None:
        return nonmembers, reference
    nonmembers, reference = _lend(nonmembers)
    notes.append(
        f"no reference given: {len(reference)} of the non-members teach the population, the rest are candidates"
    )
    return nonmembers, reference


def _frames(given: _Given, members: Labelled, nonmembers: Labelled, reference: Labelled) -> dict[str, Frame]:
    classes = int(max(part.y.max() for part in (members, nonmembers, reference, given.released))) + 1
    profile = given.profile
    embed = random_networks(members.x.shape[1:], max(2, classes), profile.seed, profile.networks, reference.x)
    return {"networks": Frame.of(reference, embed), "pixels": Frame.of(reference, values_of(reference.x))}


def _certain_copies(copies: int, by_chance: int, inside: Flags, notes: list[str]) -> int:
    """How many members' records in the set are a leak by themselves: all, unless people who are out are in it as well
    (rows of few values repeat by chance) and not clearly less often (hypergeometric test)."""
    if not by_chance:
        return copies
    notes.append(f"{by_chance} non-members are in the released set bit for bit: such records repeat by chance")
    members, both = int(inside.sum()), copies + by_chance
    p = float(hypergeom.sf(copies - 1, len(inside), members, both))
    return copies if p < TAIL_ALPHA else 0


def _scores(
    seen: Outsider,
    candidates: Candidates,
    frames: dict[str, Frame],
    profile: Profile,
    progress: Callable[[str], None],
) -> dict[str, Floats]:
    networks, raw = frames["networks"], frames["pixels"]
    found: dict[str, Floats] = {}

    def run(name: str, scored: Callable[[], Floats]) -> None:
        progress(name)
        found[name] = scored()

    run("copy-scan", lambda: copy_scan(seen, candidates))
    run("average-scan", lambda: average_scan(seen, candidates))
    run("mean-tracing", lambda: mean_tracing(seen, candidates, networks))
    run("mean-tracing-pixels", lambda: mean_tracing(seen, candidates, raw))
    run(PRIMARY, lambda: _calibrated(seen, candidates, networks, found["mean-tracing"]))
    run("nearest-neighbour", lambda: raw_neighbour(seen, candidates, networks.embed))
    run("nearest-neighbour-pixels", lambda: raw_neighbour(seen, candidates, raw.embed))
    run("image-likelihood", lambda: _best_group(seen, candidates, raw))
    if profile.with_loss:
        run("loss", lambda: loss_attack(seen, candidates, profile.seed))
    return found


def _best_group(seen: Outsider, candidates: Candidates, frame: Frame) -> Floats:
    """The largest of the standardised scores over all sizes of groups: one score, the same for everybody."""
    return np.asarray(np.max([image_likelihood(seen, candidates, frame, group) for group in GROUPS], axis=0))


def _calibrated(seen: Outsider, candidates: Candidates, frame: Frame, scores: Floats) -> Floats:
    """A6q: thresholds learnt from the half of the references that gave neither means nor whitening."""
    out = seen.population
    chosen = np.concatenate([np.flatnonzero(out.y == c)[1::2] for c in np.unique(out.y)])
    if not len(chosen):
        return scores
    others = out.take(chosen)
    theirs = mean_tracing(seen, Candidates(others.x, others.y), frame)
    return with_quantile(scores, candidates, frame, theirs, frame.centred(others.x, others.y))


def _check_shapes(given: _Given) -> None:
    for part in (given.members, given.nonmembers, given.released):
        if not len(part):
            raise AuditError(f"{part.name}: no record, so there is nothing to compare")
    if given.released.x.shape[1:] != given.members.x.shape[1:]:
        raise AuditError(
            f"released: records of shape {list(given.released.x.shape[1:])} where the members have "
            f"{list(given.members.x.shape[1:])}"
        )


def _about_twins(given: _Given, twins: int, inner: int, thresholds: Thresholds) -> tuple[list[str], list[str]]:
    notes, doubts = [], []
    if twins:
        notes.append(f"{twins} records are in both pools and were left out of both")
    if inner:
        notes.append(f"{inner} members repeat another member: each counts double in every mean")
    share = twins / min(len(given.members), len(given.nonmembers))
    if share > thresholds.twins:
        doubts.append(f"{twins} records are in both pools ({share:.0%}, allowed {thresholds.twins:.0%})")
    return notes, doubts


def _about_classes(released: Labelled, candidates: Candidates, reference: Labelled) -> list[str]:
    known, out = set(np.unique(released.y).tolist()), set(np.unique(reference.y).tolist())
    absent = sorted(set(np.unique(candidates.y).tolist()) - known)
    unknown = sorted(known - out)
    notes = []
    if absent:
        notes.append(f"classes {_listed(absent)}: nothing of them was released; which classes are is disclosed by that")
    if unknown:
        notes.append(f"classes {_listed(unknown)}: no reference has them, so mean-tracing leaves them out")
    return notes


def _listed(classes: Sequence[int]) -> str:
    return ", ".join(map(str, classes))


def _lend(nonmembers: Labelled) -> tuple[Labelled, Labelled]:
    """Every other non-member of each class teaches the population; (candidates, references)."""
    lent = np.zeros(len(nonmembers), dtype=np.bool_)
    for c in np.unique(nonmembers.y).tolist():
        lent[np.flatnonzero(nonmembers.y == c)[1::2]] = True
    if not lent.any():
        raise AuditError(
            "non-members: too few to learn the population from", hint="give more of them, or --reference with others"
        )
    kept = nonmembers.take(~lent)
    others = nonmembers.take(lent)
    repeated = set(kept.fingerprints())
    fresh = np.array([key not in repeated for key in others.fingerprints()], dtype=np.bool_)
    return kept, Labelled("reference", others.x[fresh], others.y[fresh])
