"""Scores of single records in a file of the auditor's own. They are membership data: nothing else may hold them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedsecure.errors import ConfigError
from fedsecure.files import write_durably
from fedsecure_attacks.evidence.identities import rows_of
from fedsecure_attacks.evidence.people import Flags
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["write_scores"]


def write_scores(
    path: Path, candidates: Candidates, inside: Flags, scores: Mapping[str, Floats], parts: tuple[Labelled, ...]
) -> None:
    """An ``.npz``, mode 0600: ``member`` (n,) bool, ``row`` (n,), the row in the members' or the non-members' file
    (``parts``), and each attack's scores (n,); in the order of these files. Raises ``ConfigError``."""
    rows = [rows_of([part]) for part in parts]
    keys = Labelled("candidates", candidates.x, candidates.y).fingerprints()
    row = np.array([rows[0 if held else 1][key][1] for key, held in zip(keys, inside, strict=True)], np.int64)
    order = np.lexsort((row, ~inside))
    stream = io.BytesIO()
    found = {name: values[order] for name, values in scores.items()}
    np.savez(stream, allow_pickle=False, member=inside[order], row=row[order], **found)
    write_durably(path, stream.getvalue(), error=ConfigError)
