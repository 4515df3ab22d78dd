"""Draws a run as one picture: the median of every row as a bar, its 99th percentile as a whisker.

It exists because a ratio is quicker to see than to read. It must not measure. Invariant: the picture is plain SVG, made
here, and the same figures give the same bytes; a PNG is that SVG drawn by resvg.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from benchmarks.figures import ECHO, EXTENDER, Figures, Summary

_WIDTH: Final = 900
_LEFT: Final = 330
_RIGHT: Final = 70
_TOP: Final = 64
_BAR: Final = 14
_ROW: Final = 52
_FONT: Final = "DejaVu Sans, Verdana, sans-serif"
_COLOURS: Final = {EXTENDER: "#2f6fab", ECHO: "#b5bdc6"}
_OTHER: Final = "#c98b2b"
_RESVG: Final = "resvg_py"
_STEPS: Final = (1, 2, 5)


def check(path: Path) -> None:
    """Raise ValueError if no picture can be written under this name."""
    if path.suffix not in (".svg", ".png"):
        raise ValueError("must end in .svg or .png")
    if path.suffix == ".png" and find_spec(_RESVG) is None:
        raise ValueError("needs the package resvg-py; .svg needs nothing")


def write(rows: Sequence[Figures], path: Path, caption: str) -> None:
    """Write the picture as SVG, or as PNG if the name ends so. Raises OSError, and ValueError as `check` does."""
    check(path)
    text = svg(rows, caption)
    path.write_bytes(text.encode() if path.suffix == ".svg" else _png(text))


def svg(rows: Sequence[Figures], caption: str) -> str:
    """Return the picture."""
    highest_us = max(summary.p99_us for row in rows for summary in _pairs(row).values())
    step_us = _step(highest_us)
    whole_us = -(-highest_us // step_us) * step_us
    height = _TOP + _ROW * len(rows) + 46
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{_FONT}" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(16, 24, "filter + prioritize over loopback: median, and 99th percentile as a whisker", size=15),
        *_legend(rows),
        *_axis(whole_us, step_us, height - 46),
        *(line for number, row in enumerate(rows) for line in _row(row, _TOP + _ROW * number, whole_us)),
        _text(16, height - 8, caption, size=10, colour="#667"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _row(row: Figures, top: int, whole_us: int) -> Iterator[str]:
    yield _text(_LEFT - 10, top + 16, f"{row.nodes:,} nodes, {row.pods:,} pods", anchor="end")
    yield _text(_LEFT - 10, top + 31, row.kind.value, anchor="end", colour="#667")
    for number, (server, pair) in enumerate(_pairs(row).items()):
        y = top + 4 + number * (_BAR + 2)
        end, tail = _x(pair.p50_us, whole_us), _x(pair.p99_us, whole_us)
        middle = y + _BAR // 2
        yield f'<rect x="{_LEFT}" y="{y}" width="{end - _LEFT}" height="{_BAR}" fill="{_COLOURS.get(server, _OTHER)}"/>'
        yield f'<path d="M{end} {middle}H{tail}M{tail} {middle - 4}v8" stroke="#333" fill="none"/>'
        yield _text(tail + 5, middle + 4, f"{pair.p50_us / 1000:.2f} ms", size=10)


def _axis(whole_us: int, step_us: int, bottom: int) -> Iterator[str]:
    for us in range(0, whole_us + 1, step_us):
        x = _x(us, whole_us)
        yield f'<path d="M{x} {_TOP - 4}V{bottom}" stroke="#dde"/>'
        yield _text(x, bottom + 16, f"{us / 1000:g} ms", anchor="middle", size=10)


def _legend(rows: Sequence[Figures]) -> Iterator[str]:
    x = _LEFT
    for server in _pairs(rows[0]):
        yield f'<rect x="{x}" y="38" width="12" height="12" fill="{_COLOURS.get(server, _OTHER)}"/>'
        yield _text(x + 18, 49, server)
        x += 40 + 8 * len(server)


def _pairs(row: Figures) -> dict[str, Summary]:
    others = sorted(row.summaries.keys() - {EXTENDER, ECHO})
    return {server: row.pair(server) for server in (EXTENDER, *others, ECHO) if server in row.summaries}


def _x(us: int, whole_us: int) -> int:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * us // whole_us


def _step(highest_us: int) -> int:
    """A round step that divides the axis into at most eight."""
    power = 100
    while True:
        for digit in _STEPS:
            if digit * power * 8 >= highest_us:
                return digit * power
        power *= 10


def _text(x: int, y: int, text: str, *, anchor: str = "start", size: int = 12, colour: str = "#223") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{escape(text)}</text>'


def _png(text: str) -> bytes:
    return bytes(import_module(_RESVG).svg_to_bytes(svg_string=text, zoom=2))
