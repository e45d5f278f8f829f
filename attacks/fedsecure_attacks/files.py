"""``audit files``: membership in any condensed or synthetic set, whoever made it, from four files.

Who was in is not randomised here, so there is a blind baseline; and only one set was released, so nothing can be
calibrated on others: the primary endpoint is mean-tracing with a threshold for each record (A6q), fixed beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsecure.errors import AuditError
from fedsecure_attacks import controls
from fedsecure_attacks.doubts import about_classes, about_small_classes, about_twins
from fedsecure_attacks.embedding import random_networks, values_of
from fedsecure_attacks.evidence import Gathered, Shown, facts_alone, gather
from fedsecure_attacks.images.copies import average_scan, copy_scan
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.images.likelihood import GROUPS, image_likelihood
from fedsecure_attacks.images.neighbour import raw_neighbour
from fedsecure_attacks.images.quantile import with_quantile
from fedsecure_attacks.images.tracing import mean_tracing
from fedsecure_attacks.images.trained import loss_attack
from fedsecure_attacks.judging import measure
from fedsecure_attacks.labelcheck import about_labels
from fedsecure_attacks.membercopies import NO_COPIES, MemberCopies, copies_among
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.onescale import require_one_scale
from fedsecure_attacks.records import Candidates, Labelled, Pools, without_twins
from fedsecure_attacks.reporthead import plan_sha256
from fedsecure_attacks.statistics.scores import Floats
from fedsecure_attacks.verdict import AttackResult, Control, Thresholds, Verdict, Word, decide, said_of_copies

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
    sizes: Mapping[int, int] | None = None,
) -> FilesAudit:
    """Audit ``released``. Without ``reference`` every other non-member of each class teaches the population instead,
    and is no candidate then. What makes the audit impossible is its verdict, INVALID, never an exception; members who
    are in the set as they are, or nearly, make it LEAK all the same. ``shown``: what of people the evidence may hold.
    ``sizes``: members of each class, where ``members`` were drawn of more."""
    parts = [members, nonmembers, released, *([] if reference is None else [reference])]
    inputs = {part.name: part.digest() for part in parts}
    counts = {part.name.replace("-", "_").replace(" ", "_"): len(part) for part in parts}
    small = about_small_classes(sizes or members.counts(), released, profile.thresholds.n_min)
    given, copies = _Given(members, nonmembers, released, reference, profile, inputs, counts, shown, small), NO_COPIES
    try:
        _check(given)
        progress("copies")
        copies = copies_among(members, nonmembers, released)
        return _audit(given, copies, progress)
    except AuditError as error:
        return _stopped(given, copies, error)


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
    small: list[str]


def _stopped(given: _Given, copies: MemberCopies, error: AuditError) -> FilesAudit:
    """The audit that ``error`` ends: of copies alone, where there are any."""
    exact, nearly = copies.leaks
    if not nearly:
        return FilesAudit(Verdict(Word.INVALID, str(error)), given.profile, given.counts, inputs=given.inputs)
    found = facts_alone(given.members, given.released, given.profile.thresholds, copies.leaks)
    return FilesAudit(
        Verdict(Word.LEAK, said_of_copies(exact, nearly)), given.profile, {**given.counts, **copies.counts()},
        notes=(*copies.notes(), f"nothing but copies could be looked for: {error}", *given.small),
        inputs=given.inputs, evidence=found,
    )  # fmt: skip


def _audit(given: _Given, copies: MemberCopies, progress: Callable[[str], None]) -> FilesAudit:
    profile, rng = given.profile, np.random.default_rng(given.profile.seed)
    require_one_scale(given.released, given.nonmembers if given.reference is None else given.reference)
    members, nonmembers, twins, inner = without_twins(given.members, given.nonmembers)
    notes, doubts = about_twins(given.members, given.nonmembers, twins, inner, profile.thresholds)
    if not len(members) or not len(nonmembers):
        raise AuditError("no candidates are left once the records that are in both pools are taken out")
    nonmembers, reference = _population(given.reference, nonmembers, notes)
    pools = Pools(members, nonmembers, reference)
    candidates, inside = pools.candidates(rng)
    notes += about_classes(given.released, candidates, reference)
    seen = Outsider(given.released, reference, members.counts())
    progress("embedding")
    frames = _frames(given, members, nonmembers, reference)
    odd = [*given.small, *about_labels(given.released, list(frames.values()), rng)]
    asked = (
        controls.planted(seen, candidates, inside, rng),
        controls.blind(seen, candidates, inside, frames["networks"]),
        controls.oracle(pools, candidates, inside, frames["networks"]),
    )
    scores = _scores(seen, candidates, frames, profile, progress)
    results = measure(scores, inside, profile.thresholds)
    notes += [*copies.notes(), *odd]
    exact, nearly = copies.leaks
    verdict = decide(
        results, asked, profile.thresholds, primary=PRIMARY, facts={}, doubts=[*doubts, *odd], copies=exact,
        nearly=nearly,
    )  # fmt: skip
    progress("evidence")
    measured = Gathered(
        given.released, given.members, candidates, inside, scores, results, frames["networks"], verdict, PRIMARY,
        copies.leaks,
    )  # fmt: skip
    counts = {
        **given.counts, "members_compared": len(members), "nonmembers_compared": len(nonmembers),
        "reference_used": len(reference), "in_both_pools": twins, "members_that_repeat": inner,
        **copies.counts(),
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


def _check(given: _Given) -> None:
    parts = [given.members, given.nonmembers, given.released, *([] if given.reference is None else [given.reference])]
    for part in parts:
        if not len(part):
            raise AuditError(f"{part.name}: no record, so there is nothing to compare")
    shape = given.members.x.shape[1:]
    for part in parts[1:]:
        if part.x.shape[1:] != shape:
            raise AuditError(
                f"records of different shapes: {part.name} of {list(part.x.shape[1:])}, members of {list(shape)}"
            )


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
    if not fresh.any():
        raise AuditError(
            "non-members: too few that differ to learn the population from",
            hint="give more of them, or --reference with others",
        )
    return kept, Labelled("reference", others.x[fresh], others.y[fresh])
