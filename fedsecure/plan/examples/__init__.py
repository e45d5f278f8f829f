"""Example plan files, inside the package: what ``fedsecure plan example`` prints and the demonstration runs."""

from __future__ import annotations

from importlib import resources

__all__ = ["EXAMPLES", "read_example"]

#: Names of the examples, without ``.toml``.
EXAMPLES: tuple[str, ...] = tuple(
    sorted(f.name.removesuffix(".toml") for f in resources.files(__name__).iterdir() if f.name.endswith(".toml"))
)


def read_example(name: str) -> str:
    """The text of one example. Raises ``KeyError`` for a name that is not in ``EXAMPLES``."""
    if name not in EXAMPLES:
        raise KeyError(name)
    return (resources.files(__name__) / f"{name}.toml").read_text(encoding="utf-8")
