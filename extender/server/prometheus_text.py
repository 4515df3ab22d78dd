"""Prometheus' text format, as far as long series need it.

It must not know what is measured. Source: Prometheus' docs/instrumenting/exposition_formats.md, text format 0.0.4.
"""

from collections.abc import Iterable


def head(name: str, text: str) -> bytes:
    """Return what stands before the samples of a gauge."""
    return f"# HELP {name} {text}\n# TYPE {name} gauge\n".encode()


def quoted(text: str) -> str:
    """Return the value of a label as it stands between quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def labels(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the labels of one of HAMi's metrics; its registry gives every one this zone."""
    return ",".join([*(f'{key}="{quoted(value)}"' for key, value in pairs), 'zone="vGPU"'])
