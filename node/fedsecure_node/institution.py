"""The institution's policy as it is at this moment: read anew for every decision, with the SHA-256 of its very
bytes."""

from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path

from fedsecure.errors import ConfigError
from fedsecure.policy import Policy, load_policy

__all__ = ["CurrentPolicy", "read_policy"]


@dataclass(frozen=True, slots=True)
class CurrentPolicy:
    """A policy, its file's SHA-256 (what ``sha256sum policy.toml`` prints) and its bytes."""

    policy: Policy
    digest: str
    text: bytes


def read_policy(path: Path) -> CurrentPolicy:
    """The policy now. Raises ``PolicyError`` when there is none (nothing is allowed), ``ConfigError`` when it is
    wrong."""
    _check_owner(path)
    for _ in range(3):  # a file that is being edited is read again
        policy = load_policy(path)
        text = _bytes(path)
        if load_policy(path) == policy and _bytes(path) == text:
            return CurrentPolicy(policy, hashlib.sha256(text).hexdigest(), text)
    raise ConfigError(f"{path}: changes while it is read", hint="until it is at rest, nothing is allowed")


def _check_owner(path: Path) -> None:
    """A policy that everybody can write protects nobody; a folder that cannot be looked into holds no policy."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint="until it is, nothing is allowed") from None
    if mode & stat.S_IWOTH:
        raise ConfigError(
            f"{path}: everybody can write to it (mode {stat.S_IMODE(mode):04o})", hint=f"chmod o-w {path}"
        )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint="until it is, nothing is allowed") from None
