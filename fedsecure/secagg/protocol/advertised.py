"""Advertised keys as nodes and coordinator both check them: each signed by the node that it names, for this session's
configuration and cohort, and none of them there twice."""

from __future__ import annotations

from collections.abc import Iterable

from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.protocol.codec import fault
from fedsecure.secagg.protocol.messages import ADVERTISE, Advertisement, open_signed, parse_advertise

__all__ = ["check_distinct", "open_advertisement"]


def open_advertisement(
    data: bytes, manifest: CohortManifest, config_digest: bytes, cohort_digest: bytes
) -> tuple[Advertisement, bytes]:
    """What stands in a ``Signed{Advertise}``, and its payload as it was signed, which T1 is made of.

    ``cohort_digest``: that of ``manifest``, which takes long to ask for 64 times.

    Raises ``SecAggError``: BAD_SIGNATURE, BAD_KEY for keys signed in another node's name, BAD_TRANSCRIPT for keys of
    another configuration or cohort.
    """
    signer, payload = open_signed(data, ADVERTISE, manifest)
    found = parse_advertise(payload)
    if found.node != signer:
        raise fault("BAD_KEY", f"{signer} signed keys for {found.node}")
    if (found.config_digest, found.cohort_digest) != (config_digest, cohort_digest):
        raise fault("BAD_TRANSCRIPT", f"{signer} advertised keys for another configuration or cohort")
    return found, payload


def check_distinct(advertised: Iterable[Advertisement]) -> None:
    """Raise ``SecAggError`` BAD_KEY when a key or a commitment is there twice: the second was copied."""
    seen: set[bytes] = set()
    for found in advertised:
        for key in (found.share_pk, found.mask_pk, found.seed_commit):
            if key in seen:
                raise fault("BAD_KEY", f"{found.node} advertised a key or commitment that is there already")
            seen.add(key)
