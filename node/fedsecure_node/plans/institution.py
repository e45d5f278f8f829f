"""The institution's policy as it is at this moment: read anew for every decision, with the SHA-256 of its very
bytes."""

from __future__ import annotations

import grp
import hashlib
import pwd
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedsecure.errors import ConfigError, PolicyError
from fedsecure.files import quoted
from fedsecure.policy import Policy, load_policy

__all__ = ["ABSENT_GRACE_S", "CurrentPolicy", "PolicyUnusable", "PolicyWatch", "read_policy"]

#: A policy that is not there for so long is being replaced by an editor; after it, the institution has none (seconds).
ABSENT_GRACE_S = 10.0


class PolicyUnusable(ConfigError):
    """There may be a policy, but it cannot be read or is not right now: nothing is computed and nothing leaves, until
    it is right again or known to be gone."""


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


class PolicyWatch:
    """The policy for a daemon, which outlives its edits: read anew each time, and patient where a file is at fault."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._clock = clock
        self._absent_since: float | None = None

    def read(self) -> CurrentPolicy:
        """The policy now. Raises ``PolicyUnusable`` while it cannot be read, is wrong, or is absent for no longer than
        ``ABSENT_GRACE_S``; ``PolicyError`` when it is absent for longer: then there is none, and nothing is allowed."""
        try:
            current = read_policy(self.path)
        except ConfigError as error:
            self._absent_since = None
            raise PolicyUnusable(str(error), hint=error.hint) from None
        except PolicyError as error:
            now = self._clock()
            self._absent_since = now if self._absent_since is None else self._absent_since
            if now - self._absent_since < ABSENT_GRACE_S:
                raise PolicyUnusable(str(error), hint=error.hint) from None
            raise
        self._absent_since = None
        return current


def _check_owner(path: Path) -> None:
    """A policy that others can write protects nobody; a folder that cannot be looked into tells of no policy."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint="until it is, nothing is allowed") from None
    mode = f"mode {stat.S_IMODE(found.st_mode):04o}"
    if found.st_mode & stat.S_IWOTH:
        raise ConfigError(f"{path}: everybody can write to it ({mode})", hint=f"chmod o-w {quoted(path)}")
    if found.st_mode & stat.S_IWGRP and not _is_private_group(found.st_uid, found.st_gid):
        raise ConfigError(
            f"{path}: its group {_group_name(found.st_gid)} can write to it ({mode}), and is not the private group of"
            " its owner alone",
            hint=f"chmod g-w {quoted(path)}",
        )


def _is_private_group(uid: int, gid: int) -> bool:
    """Whether a group is a user's own: it has the user's name, is the user's first group, and nobody else is in it."""
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint="until it is, nothing is allowed") from None
