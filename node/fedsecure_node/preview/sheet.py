"""A self-contained HTML page about one release: no script, nothing fetched, all text escaped; prints well."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedsecure.tensors import Array, Tensors
from fedsecure_node.text import printable

__all__ = ["Page", "heat_table", "histogram_table", "key_values", "table"]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  background: Canvas; color: CanvasText; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; border-bottom: 1px solid GrayText; }
table { border-collapse: collapse; font-size: 13px; margin: .5rem 0; display: block; overflow-x: auto; }
th, td { border: 1px solid GrayText; padding: .2rem .5rem; text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
code { font-size: 13px; overflow-wrap: anywhere; } img { max-width: 100%; height: auto; border: 1px solid GrayText; }
.note { border-left: 4px solid GrayText; padding-left: .8rem; }
.bars { display: flex; align-items: flex-end; gap: 1px; width: 9rem; height: 2rem; }
.bars i { flex: 1; background: currentColor; opacity: .6; min-height: 1px; }
@media print { body { margin: 0; max-width: none; } h2 { break-after: avoid; } tr, img { break-inside: avoid; }
  table { display: table; } }
"""
#: Bars of a histogram.
BINS = 24


def _text(text: str) -> str:
    """Text, never markup, on one line, without characters that hide or turn others around."""
    return html.escape(printable(text), quote=True)


class Page:
    """Collects sections; every string given to it is text, never markup, unless it comes from a function of this
    module."""

    def __init__(self, title: str) -> None:
        self._title = _text(title)
        self._parts: list[str] = [f"<h1>{self._title}</h1>"]

    def heading(self, text: str) -> None:
        """A section begins."""
        self._parts.append(f"<h2>{_text(text)}</h2>")

    def text(self, text: str, *, note: bool = False) -> None:
        """A paragraph; ``note`` sets it off."""
        start = '<p class="note">' if note else "<p>"
        self._parts.append(f"{start}{_text(text)}</p>")

    def lines(self, lines: Iterable[str]) -> None:
        """A list of lines."""
        self._parts.append("<ul>" + "".join(f"<li>{_text(line)}</li>" for line in lines) + "</ul>")

    def code(self, text: str) -> None:
        """Commands to type."""
        self._parts.append("<pre><code>" + "\n".join(map(_text, text.split("\n"))) + "</code></pre>")

    def markup(self, made_here: str) -> None:
        """A table made by a function of this module."""
        self._parts.append(made_here)

    def image(self, png: bytes, what: str) -> None:
        """A PNG inside the page."""
        data = base64.b64encode(png).decode()
        self._parts.append(f'<img alt="{_text(what)}" src="data:image/png;base64,{data}">')

    def render(self) -> bytes:
        """The page as UTF-8."""
        policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
        head = (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{self._title}</title><style>{_STYLE}</style></head><body>\n"
        )
        return (head + "\n".join(self._parts) + "\n</body></html>\n").encode()


def _cell(value: Any) -> str:
    if isinstance(value, bool | str) or value is None:
        return f"<td>{_text('-' if value is None else str(value))}</td>"
    text = f"{value:.5g}" if isinstance(value, float) else str(value)
    return f'<td class="n">{_text(text)}</td>'


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table: text cells left, numbers right."""
    top = "".join(f"<th>{_text(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(_cell(v) for v in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def key_values(rows: Mapping[str, Any]) -> str:
    """Names and values, one a line."""
    body = "".join(f"<tr><th>{_text(k)}</th>{_cell(v)}</tr>" for k, v in rows.items())
    return f"<table><tbody>{body}</tbody></table>"


def _shade(value: float, most: float) -> str:
    return f"{0.6 * abs(float(value)) / most:.2f}" if most else "0"


def heat_table(array: Array, rows: Sequence[str], columns: Sequence[str]) -> str:
    """A matrix (r, c) with cells shaded by magnitude; the numbers stay readable on light and dark pages."""
    most = float(np.abs(array).max()) if array.size else 0.0
    head = "<tr><th></th>" + "".join(f"<th>{_text(c)}</th>" for c in columns) + "</tr>"
    body = []
    for name, values in zip(rows, array, strict=True):
        cells = "".join(
            f'<td class="n" style="background:rgba(128,128,255,{_shade(v, most)})">{v:.3g}</td>' for v in values
        )
        body.append(f"<tr><th>{_text(name)}</th>{cells}</tr>")
    return f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"


def histogram_table(tensors: Tensors, limit: int = 200) -> str:
    """Quantiles and a small histogram of each tensor."""
    rows = []
    for name, array in list(tensors.items())[:limit]:
        if not array.size:
            continue
        flat = array.astype(np.float64).ravel()
        q = np.quantile(flat, [0, 0.01, 0.5, 0.99, 1])
        counts, _ = np.histogram(flat, bins=BINS)
        top = max(int(counts.max()), 1)
        bars = "".join(f'<i style="height:{100 * int(c) / top:.0f}%"></i>' for c in counts)
        numbers = "".join(_cell(float(v)) for v in q)
        rows.append(
            f"<tr><td>{_text(name)}</td>{numbers}{_cell(float(np.sqrt((flat**2).mean())))}"
            f'<td><div class="bars">{bars}</div></td></tr>'
        )
    head = "".join(f"<th>{h}</th>" for h in ("tensor", "least", "1 %", "median", "99 %", "most", "rms", "histogram"))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
