"""Whether two clocks agree well enough: certificates, deadlines and logs all rest on them."""

from __future__ import annotations

from fedsecure.errors import CertificateError

__all__ = ["MAX_CLOCK_SKEW_MS", "clock_skew"]

#: The most that the clocks of a node and its coordinator may differ: five minutes (milliseconds), as in Kerberos
#: (RFC 4120, section 8.2), and as much as certificates are dated back.
MAX_CLOCK_SKEW_MS = 300_000


def clock_skew(local_ms: int, remote_ms: int, *, peer: str = "the peer", limit_ms: int = MAX_CLOCK_SKEW_MS) -> None:
    """Raise ``CertificateError``, naming the difference, when two clocks differ by more than ``limit_ms``.

    All times are milliseconds since 1970-01-01 UTC. ``peer`` names the other side in the message.
    """
    skew = remote_ms - local_ms
    if abs(skew) > limit_ms:
        raise CertificateError(
            f"clock skew: the clock of {peer} is {_span(abs(skew))} {'ahead of' if skew > 0 else 'behind'} ours "
            f"(allowed: {_span(limit_ms)})",
            hint="set the clock that is wrong, best by a time service (NTP)",
        )


def _span(ms: int) -> str:
    """A length of time in words: ``6 min 3 s``, its two greatest units."""
    seconds = ms // 1000
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    parts = []
    for unit, size in units:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or f"{ms} ms"
