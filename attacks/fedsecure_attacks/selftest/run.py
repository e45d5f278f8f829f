"""The self-test: what is tried, and what has to come out."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsecure import __version__
from fedsecure.errors import AuditError
from fedsecure_attacks.embedding import pixels
from fedsecure_attacks.files import Profile, audit_files
from fedsecure_attacks.images.copies import average_scan, copy_scan
from fedsecure_attacks.images.likelihood import image_likelihood
from fedsecure_attacks.images.neighbour import raw_neighbour
from fedsecure_attacks.images.tracing import mean_tracing
from fedsecure_attacks.images.trained import loss_attack
from fedsecure_attacks.mechanism.setting import Setting
from fedsecure_attacks.mechanism.shadows import make_shadow
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.selftest.cases import Answer, World, by_area, by_silence, by_tail
from fedsecure_attacks.selftest.people import averages, noise, pictures, rows
from fedsecure_attacks.statistics.epsilon import largest_certifiable, split_bound
from fedsecure_attacks.statistics.roc import auc
from fedsecure_attacks.statistics.scores import Scores
from fedsecure_attacks.statistics.theory import auc_of, conditional_effect
from fedsecure_attacks.verdict import Word

__all__ = ["SelfTest", "selftest"]

Progress = Callable[[str], None]
#: Of the theory's case: dimensions, records in the mean, releases.
DIMENSIONS, RECORDS, RELEASES = 64, 50, 30
#: People that a set is condensed from.
FEW = 30


@dataclass(frozen=True)
class SelfTest:
    """All answers, and the seed that everything was drawn from."""

    seed: int
    answers: tuple[Answer, ...]

    @property
    def word(self) -> Word:
        """INVALID when one answer is not what it must be."""
        return Word.NO_LEAK_DETECTED if all(a.passed for a in self.answers) else Word.INVALID

    @property
    def reason(self) -> str:
        """One sentence."""
        wrong = [a.name for a in self.answers if not a.passed]
        if wrong:
            return f"{len(wrong)} of {len(self.answers)} answers are wrong: {'; '.join(wrong)}"
        return f"all {len(self.answers)} answers are as they must be; nothing of yours was audited"

    def report(self) -> dict[str, Any]:
        """As strict JSON takes it; each answer is a control."""
        plan = {"mode": "selftest", "seed": self.seed}
        return {
            "schema_version": 1,
            "version": __version__,
            "mode": "selftest",
            "verdict": self.word.value,
            "reason": self.reason,
            "exit_code": self.word.exit_code,
            "primary": "every answer",
            "plan": plan,
            "plan_sha256": hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest(),
            "inputs_sha256": {},
            "counts": {"answers": len(self.answers), "wrong": sum(not a.passed for a in self.answers)},
            "notes": ["Everybody in this test is made up. It tells whether the attacks work, and nothing of any data."],
            "controls": {a.name: {"passed": a.passed, "found": f"{a.found} (must be: {a.must})"} for a in self.answers},
            "attacks": {},
        }


#: How many parts it has, each of which is told to ``progress``.
PARTS = 5


def _parts() -> dict[str, Callable[[int], Iterator[Answer]]]:
    return {
        "planted leaks": _planted,
        "condensed sets": _condensed,
        "sets made from other people": _silent,
        "verdicts": _verdicts,
        "statistics": _statistics,
    }


def selftest(seed: int = 0, progress: Progress = lambda what: None) -> SelfTest:
    """Plant, attack, compare: under a minute. The same seed gives the same answers."""
    found: list[Answer] = []
    for what, part in _parts().items():
        progress(what)
        found += part(seed)
    return SelfTest(seed, tuple(found))


def _world(seed: int) -> World:
    return World.of(seed, 80, 1000, 400)


def _with_noise(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Labelled:
    """A set of twenty pictures of nobody, the first of which are replaced."""
    made = noise(20, rng)
    return Labelled("released", np.concatenate([x, made.x[len(x) :]]), np.concatenate([y, made.y[len(y) :]]))


def _planted(seed: int) -> Iterator[Answer]:
    world, rng = _world(seed), np.random.default_rng([seed, 1])
    x, y = world.pools.members.x, world.pools.members.y
    changed = np.round(x[:8, ..., ::-1] * np.float32(32)) / np.float32(32)
    near = np.clip(x + 0.1 * rng.standard_normal(x.shape), 0, 1).astype(np.float32)
    sets = {
        "copies": _with_noise(x[:8], y[:8], rng),
        "changed": _with_noise(np.ascontiguousarray(changed), y[:8], rng),
        "pairs": averages(world.pools.members, 6, 2),
        "tens": averages(world.pools.members, 4, 10),
        "means": averages(world.pools.members, 1),
        "near": Labelled("released", near, y),
    }
    seen, who = {name: world.seen(released) for name, released in sets.items()}, world.candidates
    scan = {name: world.scores(copy_scan(seen[name], who)) for name in ("copies", "changed")}
    yield by_tail("copies of 8 people: copy-scan", scan["copies"], 8)
    yield by_tail("the same mirrored, in 33 shades: copy-scan", scan["changed"], 8)
    yield by_tail("averages of two: average-scan", world.scores(average_scan(seen["pairs"], who)), 24)
    yield by_area(
        "averages of ten: image-likelihood", world.scores(image_likelihood(seen["tens"], who, world.pixels, 10))
    )
    yield by_area("class means: mean-tracing", world.scores(mean_tracing(seen["means"], who, world.pixels)))
    yield by_area("noisy records: nearest-neighbour", world.scores(raw_neighbour(seen["near"], who, pixels)))
    yield by_area("noisy records: loss", world.scores(loss_attack(seen["near"], who, seed)))


def _condensed(seed: int) -> Iterator[Answer]:
    """Two sets condensed from few people by the loop that nodes use, from noise; of members, and of others."""
    world, rng = World.of(seed, FEW, 600, 400), np.random.default_rng([seed, 2])
    setting = Setting(ipc=5, steps=120, interval=15)
    for name, people in (("members", world.pools.members), ("other people", pictures("strangers", FEW, rng))):
        made = make_shadow(people, np.ones(len(people), np.bool_), setting, seed, 0).released
        scores = world.scores(mean_tracing(world.seen(made), world.candidates, world.networks))
        said = f"condensed from {FEW} {name}: mean-tracing"
        yield by_area(said, scores) if name == "members" else by_silence(said, scores)


def _silent(seed: int) -> Iterator[Answer]:
    world, rng = _world(seed), np.random.default_rng([seed, 3])
    others = pictures("strangers", 80, rng)
    for name, released in (("averages of other people", averages(others, 4)), ("noise", noise(20, rng))):
        seen, who = world.seen(released), world.candidates
        scored = {
            "copy-scan": copy_scan(seen, who),
            "average-scan": average_scan(seen, who),
            "mean-tracing": mean_tracing(seen, who, world.networks),
            "mean-tracing-pixels": mean_tracing(seen, who, world.pixels),
            "nearest-neighbour": raw_neighbour(seen, who, pixels),
            "image-likelihood": image_likelihood(seen, who, world.pixels, 10),
        }
        for attack, values in scored.items():
            yield by_silence(f"{name}: {attack}", world.scores(values))


def _verdicts(seed: int) -> Iterator[Answer]:
    rng = np.random.default_rng([seed, 4])
    members, out, others = (rows(n, k, rng) for n, k in (("members", 40), ("non-members", 300), ("reference", 160)))
    copied = Labelled("released", members.x[:4], members.y[:4])
    strangers = averages(rows("strangers", 40, rng), 2)

    def audited(name: str, must: Word, reason: str, *parts: Labelled) -> Answer:
        inside, outside, released, reference = parts
        profile = Profile(networks=1, with_loss=False, seed=seed)
        verdict = audit_files(inside, outside, released, reference, profile).verdict
        passed = verdict.word is must and reason in verdict.reason
        return Answer(f"audit of {name}", must.value, f"{verdict.word.value}: {verdict.reason}", passed)

    yield audited("four copied rows", Word.LEAK, "4 members were released bit for bit", members, out, copied, others)
    yield audited("class means", Word.LEAK, "", members, out, averages(members, 1), others)
    yield audited("means of others", Word.INCONCLUSIVE, "", members, out, strangers, others)
    many = [rows(n, k, rng) for n, k in (("members", 3000), ("non-members", 3000), ("reference", 800))]
    large = averages(rows("strangers", 200, rng), 3)
    yield audited("means of others, with 3,000 people", Word.NO_LEAK_DETECTED, "", many[0], many[1], large, many[2])
    swapped = Labelled("members", out.x[:40], out.y[:40]), Labelled("non-members", members.x, members.y)
    near = Labelled("released", members.x + rng.normal(0, 0.05, members.x.shape).astype(np.float32), members.y)
    yield audited("members given as non-members", Word.INVALID, "direction", *swapped, near, others)
    known = Labelled("reference", out.x[:50], out.y[:50])
    yield audited(
        "references who are candidates", Word.INVALID, "among the non-members", members, out, strangers, known
    )
    try:
        Labelled("released", np.full((2, 3), np.nan, np.float32), np.zeros(2, np.int64))
        yield Answer("a set with NaN", "refused", "taken", passed=False)
    except AuditError as error:
        yield Answer("a set with NaN", "refused", str(error), passed=True)


def _statistics(seed: int) -> Iterator[Answer]:
    rng = np.random.default_rng([seed, 5])
    reached, said = np.empty(RELEASES), np.empty(RELEASES)
    for at in range(RELEASES):
        people = rng.standard_normal((RECORDS + 500, DIMENSIONS))
        m = people[:RECORDS].mean(axis=0)
        reached[at] = auc(Scores.of(people @ m, np.arange(len(people)) < RECORDS))
        said[at] = auc_of(conditional_effect(m, np.ones(DIMENSIONS), RECORDS))
    error = float(reached.std(ddof=1)) / math.sqrt(RELEASES)
    passed = abs(float((reached - said).mean())) < max(4 * error, 0.006)
    yield Answer(f"means of {RECORDS} rows: area", f"{said.mean():.3f} by theory (F5)", f"{reached.mean():.3f}", passed)
    top = largest_certifiable(200, 200)
    perfect = split_bound(Scores(np.ones(400), np.zeros(400)), rng)
    assert perfect is not None
    yield Answer("epsilon of a perfect attack", f"{top:.2f}", f"{perfect.low:.2f}", abs(perfect.low - top) < 1e-9)
    blank = [split_bound(Scores(rng.standard_normal(200), rng.standard_normal(200)), rng) for _ in range(60)]
    above = sum(bound is not None and bound.low > 0 for bound in blank)
    yield Answer("epsilon without any leak, 60 times", "above 0 in 9 at most", f"above 0 in {above}", above <= 9)
