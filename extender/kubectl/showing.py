"""Tables as kubectl prints them, and the few sentences of `why`.

It must not ask anything. Invariants: the same answers give the same bytes; only `Paint` adds colour.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from extender.printable import printable
from extender.reports import WRONG, card_marks, request_text

Json = dict[str, Any]
_DIMENSIONS = ("memory", "cores", "slots")


class Column(NamedTuple):
    """A column: its heading, its text for a row, and whether only `-o wide` has it."""

    head: str
    text: Callable[[Json], object]
    wide: bool = False


class Paint(NamedTuple):
    """Colours, if they are on."""

    on: bool

    @classmethod
    def of_terminal(cls) -> "Paint":
        """Return colours for a terminal, unless NO_COLOR is set; see https://no-color.org."""
        return cls(sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")

    def bad(self, text: str) -> str:
        """Return a text in the colour of problems."""
        return f"\x1b[31m{text}\x1b[0m" if self.on else text

    def strong(self, text: str) -> str:
        """Return a text that stands out."""
        return f"\x1b[1m{text}\x1b[0m" if self.on else text


def table(columns: Sequence[Column], rows: Sequence[Json], paint: Paint, *, wide: bool) -> Iterator[str]:
    """Yield aligned lines under a header; three spaces between columns, as kubectl."""
    shown = [each for each in columns if wide or not each.wide]
    cells = [[each.head for each in shown]]
    cells += [[printable(str(each.text(row))) or "-" for each in shown] for row in rows]
    widths = [max(len(line[place]) for line in cells) for place in range(len(shown))]
    for number, line in enumerate(cells):
        text = "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        is_bad = number > 0 and bool(rows[number - 1].get("bad"))
        yield paint.bad(text) if is_bad else text


def node_row(entry: Json) -> Json:
    """Return the sums of a node's cards."""
    cards = entry["devices"]
    marks = {mark for card in cards for mark in card_marks(card)}
    problems = [mark for mark in WRONG if mark in marks]
    sums = {
        kind: {name: sum(card[kind][name] for card in cards) for name in _DIMENSIONS}
        for kind in ("requested", "capacity")
    }
    models = sorted({card["type"] for card in cards if card["type"]})
    raw = entry.get("raw", [])
    holders = {(each["kind"], each["name"]) for part in (*cards, *raw) for each in part["holders"]}
    if any(use["overcommitted"] for use in raw):
        problems = list(dict.fromkeys([*problems, "over-committed"]))
    return {
        "node": entry["node"],
        "cards": len(cards),
        "free": sum(not card["holders"] for card in cards),
        "models": ", ".join(models),
        "pods": _count(holders, "pod"),
        "claims": _count(holders, "claim"),
        "vmis": _count(holders, "vmi"),
        "holds": _count(holders, "hold"),
        "raw": ", ".join(f"{use['used']}/{use['allocatable']} {use['key'].rpartition('/')[2]}" for use in raw),
        "state": ", ".join(problems) or "ok",
        "bad": bool(problems),
        **sums,
    }


def _count(holders: set[tuple[str, str]], kind: str) -> int:
    return sum(each == kind for each, _ in holders)


def _held_by(holders: Iterable[Json]) -> str:
    return ", ".join(f"{each['kind']} {each['name']}" for each in holders)


NODES = (
    Column("NODE", lambda row: row["node"]),
    Column("CARDS", lambda row: row["cards"]),
    Column("EMPTY", lambda row: row["free"], wide=True),
    Column("MEMORY", lambda row: f"{_mib(row['requested']['memory'])}/{_mib(row['capacity']['memory'])}"),
    Column("MEMORY%", lambda row: _percent(row, "memory")),
    Column("CORES%", lambda row: _percent(row, "cores")),
    Column("SLOTS", lambda row: f"{row['requested']['slots']}/{row['capacity']['slots']}"),
    Column("PODS", lambda row: row["pods"]),
    Column("CLAIMS", lambda row: row["claims"]),
    Column("VMIS", lambda row: row["vmis"]),
    Column("HOLDS", lambda row: row["holds"], wide=True),
    Column("STATE", lambda row: row["state"]),
    Column("WHOLE DEVICES", lambda row: row["raw"], wide=True),
    Column("MODELS", lambda row: row["models"], wide=True),
)


def pod_row(entry: Json) -> Json:
    """Return the sums of what a pod holds."""
    namespace, _, name = entry["pod"].partition("/")
    held = list(entry["held"].values())
    steady = list(entry["steady"].values()) if entry["state"] == "peak" else []
    state = "Waiting" if entry["node"] is None else {"peak": "Inits", "steady": "Steady"}.get(entry["state"], "Ended")
    return {
        "namespace": namespace,
        "name": name,
        "node": entry["node"] or "",
        "state": f"{state}: {entry['problem']['code']}" if "problem" in entry else state,
        "cards": len(held),
        "bad": "problem" in entry or "invalid" in entry,
        "held": {name: sum(use[name] for use in held) for name in _DIMENSIONS},
        "later": _mib(sum(use["memory"] for use in steady)) if steady else "",
        "uuids": ",".join(entry["held"]),
    }


PODS = (
    Column("NAMESPACE", lambda row: row["namespace"]),
    Column("NAME", lambda row: row["name"]),
    Column("STATE", lambda row: row["state"]),
    Column("CARDS", lambda row: row["cards"]),
    Column("MEMORY", lambda row: _mib(row["held"]["memory"])),
    Column("CORES", lambda row: row["held"]["cores"]),
    Column("SLOTS", lambda row: row["held"]["slots"]),
    Column("NODE", lambda row: row["node"]),
    Column("AFTER INITS", lambda row: row["later"], wide=True),
    Column("UUIDS", lambda row: row["uuids"], wide=True),
)

USAGE = (
    Column("NAMESPACE", lambda row: row["namespace"]),
    Column("PODS", lambda row: row["pods"]),
    Column("CARDS", lambda row: row["cards"]),
    Column("MEMORY", lambda row: _mib(row["held"]["memory"])),
    Column("CORES", lambda row: row["held"]["cores"]),
    Column("SLOTS", lambda row: row["held"]["slots"]),
    Column("QUOTAS", lambda row: ", ".join([*map(_quota, row["quotas"]), *map(_budget, row["raw"])])),
    Column("CLAIMS", lambda row: row["claims"]["claims"], wide=True),
    Column("CLAIMED MEMORY", lambda row: _mib(row["claims"]["held"]["memory"]), wide=True),
    Column("CHARGED COUNT", lambda row: row["charged"]["count"], wide=True),
    Column("CHARGED MEMORY", lambda row: _mib(row["charged"]["memory"]), wide=True),
    Column("CHARGED CORES", lambda row: row["charged"]["cores"], wide=True),
)

RECORDS = (
    Column("NAMESPACE", lambda row: row["namespace"]),
    Column("KIND", lambda row: row["kind"]),
    Column("NAME", lambda row: row["name"]),
    Column("WHAT", lambda row: row["model"] or row["raw_key"]),
    Column("PHASE", lambda row: row["phase"]),
    Column("UNIT-S", lambda row: row["unit_seconds"]),
    Column("SLOT-S", lambda row: row["slot_seconds"]),
    Column("MEMORY MIB-S", lambda row: row["memory_mib_seconds"]),
    Column("CORES %-S", lambda row: row["core_percent_seconds"]),
    Column("OPEN", lambda row: "yes" if row["open"] else "no"),
    Column("FIRST", lambda row: row["first"], wide=True),
    Column("LAST", lambda row: row["last"], wide=True),
    Column("UID", lambda row: row["uid"], wide=True),
)

CARDS = (
    Column("NODE", lambda row: row["node"]),
    Column("CARD", lambda row: row["uuid"]),
    Column("MEMORY", lambda row: f"{_mib(row['requested']['memory'])}/{_mib(row['capacity']['memory'])}"),
    Column("CORES", lambda row: f"{row['requested']['cores']}/{row['capacity']['cores']}"),
    Column("SLOTS", lambda row: f"{row['requested']['slots']}/{row['capacity']['slots']}"),
    Column("HOLDERS", lambda row: len(row["holders"])),
    Column("MODEL", lambda row: row["type"] or "", wide=True),
    Column("HELD BY", lambda row: _held_by(row["holders"]), wide=True),
)

RAW = (
    Column("NODE", lambda row: row["node"]),
    Column("WHOLE DEVICES", lambda row: row["key"]),
    Column("USED", lambda row: f"{row['used']}/{row['allocatable']}"),
    Column(
        "HELD BY", lambda row: ", ".join(f"{each['kind']} {each['name']} {each['units']}" for each in row["holders"])
    ),
)

PROBLEMS = (
    Column("PROBLEM", lambda row: row["code"]),
    Column("OBJECT", lambda row: row["object"]),
    Column("MESSAGE", lambda row: row["message"]),
)


def why_lines(why: Json, paint: Paint) -> Iterator[str]:
    """Yield the lines that say why a pod waits, or where it would go."""
    where = f" on {why['node']}" if why["node"] else ""
    yield f"{paint.strong(printable(why['pod']))}{printable(where)}"
    for container in why["asks"]:
        for request in container["requests"]:
            yield printable(f"  {container['kind']} {container['name']} asks for {request_text(request)}")
    yield printable(f"  {why['text']}")
    if why["refused"]:
        rows = [each | {"count": f"{each['count']}/{why['nodes']}"} for each in why["refused"]]
        columns = (
            Column("  NODES", lambda row: f"  {row['count']}"),
            Column("REASON", lambda row: row["code"]),
            Column("SUCH AS", lambda row: ", ".join(row["nodes"][:3])),
        )
        yield from table(columns, rows, paint, wide=False)
    for place, each in enumerate(why["best"][:3]):
        yield printable(f"  {'would go to' if place == 0 else 'then'} {each['node']} (score {each['score']})")
    for near in why["nearest"]:
        if near["text"] != why["text"]:
            yield printable(f"  {near['text']}")


def _quota(row: Json) -> str:
    short = row["resource"].rpartition("/")[2]
    return f"{short} {row['used']}/{row['hard']}{' (exceeded)' if row['exceeded'] else ''}"


def _budget(row: Json) -> str:
    """Return what a namespace has of a raw key, and may have."""
    hard = "" if row["hard"] is None else f"/{row['hard']}"
    return f"{row['key'].rpartition('/')[2]} {row['used']}{hard}"


def _mib(mib: int) -> str:
    """Return memory as kubectl shows it: whole GiB as Gi, the rest as Mi."""
    return f"{mib // 1024}Gi" if mib and mib % 1024 == 0 else f"{mib}Mi"


def _percent(row: Json, name: str) -> str:
    whole = row["capacity"][name]
    return f"{round(100 * row['requested'][name] / whole)}%" if whole else "-"
