"""Small audits of made-up people, for the tests of the attacks."""

from __future__ import annotations

import numpy as np

from fedsecure_attacks.files import FilesAudit, Profile, audit_files
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.selftest.people import averages, noise, pictures, rows

__all__ = ["QUICK", "audited", "averages", "noise", "pictures", "planted", "result", "rows", "three"]

QUICK = Profile(networks=1, with_loss=False)


def three(make, n1: int, n0: int, ref: int, rng: np.random.Generator) -> tuple[Labelled, Labelled, Labelled]:
    """Members, non-members and references, each by ``make`` (``pictures`` or ``rows``)."""
    return make("members", n1, rng), make("non-members", n0, rng), make("reference", ref, rng)


def planted(x: np.ndarray, y: np.ndarray, rng: np.random.Generator, n: int = 20) -> Labelled:
    """``n`` records of nobody, the first of which are replaced by ``x``."""
    made = noise(n, rng) if x.ndim == 4 else rows("released", n, rng)
    k = len(x)
    return Labelled("released", np.concatenate([x.astype(np.float32), made.x[k:]]), np.concatenate([y, made.y[k:]]))


def audited(parts: tuple[Labelled, Labelled, Labelled], released: Labelled, profile: Profile = QUICK) -> FilesAudit:
    """``parts``: as ``three`` gives them."""
    return audit_files(parts[0], parts[1], released, parts[2], profile)


def result(audit: FilesAudit, name: str):
    """What one attack found."""
    return next(r for r in audit.results if r.name == name)
