"""What the scenarios measured, as JSON and as a page.

It exists so that no number of the page is copied by hand. It must not measure. Invariant: the page has only what the
JSON beside it has; figures of scenarios that a run did not play stay.

    python -m tests.e2e.figures docs/e2e.json     write the page anew
"""

import os
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

Figures = Mapping[str, Any]
_PAGE: Final = "e2e-figures.md"
_OPTIONS: Final = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
_THROUGHPUT: Final = "2-throughput, "


def write_figures(path: Path, measured: Figures) -> None:
    """Merge what was measured into a JSON file, and write the page beside it."""
    known = orjson.loads(path.read_bytes()) if path.exists() else {}
    for version, scenarios in measured.items():
        known.setdefault(version, {}).update(scenarios)
    known["machine"] = {"cores": os.cpu_count(), "python": platform.python_version()}
    path.write_bytes(orjson.dumps(known, option=_OPTIONS))
    path.with_name(_PAGE).write_text(page(known))


def page(figures: Figures) -> str:
    """The page."""
    return "\n".join(_lines(figures)) + "\n"


def _lines(figures: Figures) -> Iterator[str]:
    machine = figures["machine"]
    yield "# Figures of the end-to-end scenarios"
    yield ""
    yield f'Written by `make e2e ARGS="-o docs/e2e.json"` from [e2e.json](e2e.json); {machine["cores"]} cores, on which'
    yield f"etcd, kube-apiserver, kube-scheduler, the extender (Python {machine['python']}) and the tests all run."
    for version in sorted((key for key in figures if key[0].isdigit()), reverse=True):
        yield ""
        yield f"## Kubernetes {version}"
        yield from _throughput(figures[version])
        yield from _bursts(figures[version])
        yield from _waking(figures[version])
        yield from _bounded(figures[version])
        yield from _preemptions(figures[version])
    yield from _image(figures)


def _image(figures: Figures) -> Iterator[str]:
    if "image" in figures:
        made = figures["image"]
        yield from ("", "## The image", "")
        yield f"{made['MB unpacked']} MB, {made['MB packed']} MB packed, built in {made['seconds to build']} s."


def _throughput(scenarios: Figures) -> Iterator[str]:
    for name in sorted((key for key in scenarios if key.startswith(_THROUGHPUT)), key=len):
        measured = scenarios[name]
        ways = {way: figure for way, figure in measured.items() if isinstance(figure, dict)}
        yield from _table(
            f"Pods per second, 3,000 pods, {name.removeprefix(_THROUGHPUT)}, every node scored, lock mode none "
            f"(load average before: {measured['load average before']})",
            ("", "pods/s", "ratio", "scheduler ms/pod", "extender ms/pod"),
            [
                (
                    way,
                    figure["pods per second"],
                    figure["ratio to no extender"],
                    figure["processor ms per pod"].get("kube-scheduler", ""),
                    figure["processor ms per pod"].get("extender", ""),
                )
                for way, figure in sorted(ways.items(), key=lambda item: -item[1]["pods per second"])
            ],
        )


def _bursts(scenarios: Figures) -> Iterator[str]:
    rows = [
        (
            name,
            figure["first to last placed, seconds"],
            figure["binds"].get("bound", 0),
            f"{100 * figure['share of binds refused for lack of room']:.1f} %",
            figure["watch events"],
        )
        for name, figure in sorted(scenarios.items())
        if "first to last placed, seconds" in figure
    ]
    yield from _table(
        "Bursts; no card was over-committed after any watch event. Binds are those of the extender that ran last",
        ("scenario, lock mode", "first to last placed, s", "bound", "refused for lack of room", "watch events"),
        rows,
    )


def _waking(scenarios: Figures) -> Iterator[str]:
    rows = [
        (name, *max(figure["placed after seconds"].items(), key=lambda item: item[1]))
        for name, figure in sorted(scenarios.items())
        if name.startswith("3-")
    ]
    yield from _table(
        "From the moment at which room is made, or a pod created, to its node",
        ("scenario, lock mode", "slowest pod", "s"),
        rows,
    )


def _bounded(scenarios: Figures) -> Iterator[str]:
    rows = [
        (
            name,
            figure["measured"]["seconds"],
            figure["measured"]["filter calls"],
            figure["measured"]["answers from memory"],
            figure["measured"]["extender cpu share"],
            figure["measured"]["extender cpu ms per filter call"],
        )
        for name, figure in sorted(scenarios.items())
        if "measured" in figure
    ]
    yield from _table(
        "The extender's processor time, as a share of one core",
        ("scenario", "s", "filter calls", "answers from memory", "share", "ms per filter call"),
        rows,
    )


def _preemptions(scenarios: Figures) -> Iterator[str]:
    rows = [
        (name, _counted(figure["victims"]), figure["binds"].get("bound", 0), figure["watch events"])
        for name, figure in sorted(scenarios.items(), key=lambda item: (len(item[0].partition("-")[0]), item[0]))
        if "victims" in figure
    ]
    yield from _table(
        "Preemption by the verb (9) and by evicting (10); nobody else went, and no card was over-committed after any "
        "watch event. Binds are those of the extender that ran last",
        ("scenario, lock mode", "victims", "bound", "watch events"),
        rows,
    )


def _counted(names: Sequence[str]) -> str:
    """Names, each once, with how often it came."""
    counts = Counter(names)
    return (
        ", ".join(name if count == 1 else f"{name} {count} times" for name, count in sorted(counts.items())) or "none"
    )


def _table(title: str, head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Iterator[str]:
    if rows:
        yield from ("", f"{title}:", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}")
        yield from (f"| {' | '.join(map(str, row))} |" for row in rows)


if __name__ == "__main__":
    _path = Path(sys.argv[1])
    _path.with_name(_PAGE).write_text(page(orjson.loads(_path.read_bytes())))
