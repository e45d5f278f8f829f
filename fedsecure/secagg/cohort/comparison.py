"""Comparing a cohort's manifest with what people told each other by another way than the one that it came by."""

from __future__ import annotations

from collections.abc import Mapping

from fedsecure.errors import CertificateError, ConfigError
from fedsecure.secagg.cohort.manifest import CohortManifest

__all__ = ["difference", "digest_from", "require_digest", "require_fingerprints", "require_newer", "spaced"]

_DIGITS = 64
_HEX = frozenset("0123456789abcdef")


def spaced(digest: str) -> str:
    """Hexadecimal digits in groups of eight, for reading out; ``digest_from`` takes them back."""
    return " ".join(digest[at : at + 8] for at in range(0, len(digest), 8))


def digest_from(text: str, what: str = "digest") -> str:
    """The 64 lower-case digits that a person gave (case, spaces, colons and the prefix ``SHA256:`` do not count).

    Raises ``ConfigError``, naming ``what``, for anything else.
    """
    plain = "".join(text.split()).lower().removeprefix("sha256:").replace(":", "")
    if len(plain) != _DIGITS or set(plain) - _HEX:
        raise ConfigError(f"{what} {text[:100]!r} is malformed", hint=f"{_DIGITS} hexadecimal digits, all of them")
    return plain


def require_digest(manifest: CohortManifest, text: str) -> None:
    """Raise ``CertificateError``, naming both, unless ``text`` is the manifest's digest; ``ConfigError`` when it is
    none."""
    due, actual = digest_from(text), manifest.digest.hex()
    if due != actual:
        raise CertificateError(
            f"cohort {manifest.cohort}: the manifest has the digest {actual}, not {due}",
            hint="do not trust it; ask the other operators for their copy, and for its digest again",
        )


def require_fingerprints(manifest: CohortManifest, given: Mapping[str, str], *, own: str) -> None:
    """Raise ``CertificateError`` unless ``given`` has the right fingerprint of every node but ``own``; ``ConfigError``
    for what is none."""
    for node, text in given.items():
        actual = manifest.member(node).fingerprint
        due = digest_from(text, f"fingerprint of {node}")
        if digest_from(actual) != due:
            raise CertificateError(
                f"cohort {manifest.cohort}: the manifest names the key {actual} for node {node}, not {text.strip()}",
                hint=f"do not trust it; ask the operator of {node} to read the fingerprint out again",
            )
    if left := [m.node for m in manifest.nodes if m.node != own and m.node not in given]:
        raise CertificateError(
            f"cohort {manifest.cohort}: no fingerprint was given for {', '.join(left)}",
            hint="give that of every other node, as its operator read it out, or the manifest's --digest",
        )


def require_newer(manifest: CohortManifest, held: CohortManifest, where: str) -> None:
    """Raise ``CertificateError`` unless ``manifest`` may take the place of ``held``, which ``where`` has: a higher
    version of the same cohort, or the same content."""
    if manifest.digest == held.digest or manifest.version > held.version:
        return
    if manifest.version == held.version:
        raise CertificateError(
            f"cohort {manifest.cohort}: {where} has version {held.version} with other content",
            hint=f"a change of the cohort needs version {held.version + 1}, signed by all of its nodes",
        )
    raise CertificateError(
        f"cohort {manifest.cohort}: version {manifest.version} is older than version {held.version}, which {where} has",
        hint="use the newer one; to go back to older content, agree on it under a higher version",
    )


def difference(one: CohortManifest, other: CohortManifest) -> str:
    """In words, how ``other`` differs from ``one`` besides signatures; empty when it does not."""
    if one.digest == other.digest:
        return ""
    found = [
        f"{what} {there} instead of {here}"
        for what, here, there in (
            ("federation", one.federation, other.federation),
            ("cohort", one.cohort, other.cohort),
            ("version", one.version, other.version),
        )
        if here != there
    ]
    here, there = ({m.node: m.key for m in manifest.nodes} for manifest in (one, other))
    found += [f"without {node}" for node in sorted(set(here) - set(there))]
    found += [f"with {node} besides" for node in sorted(set(there) - set(here))]
    found += [f"another key of {node}" for node in sorted(set(here) & set(there)) if here[node] != there[node]]
    return ", ".join(found)
