"""Values of a benchmark: what a case is, and what is kept of its times.

It exists so that measuring, judging and showing share one small set of values. It must not measure or print.
Invariant: times are integers, nanoseconds as measured and microseconds as kept; a percentile is one of the times.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

Json = dict[str, Any]

PAIR: Final[str] = "pair"
FILTER: Final[str] = "filter"
PRIORITIZE: Final[str] = "prioritize"
PARTS: Final = (PAIR, FILTER, PRIORITIZE)
EXTENDER: Final[str] = "extender"
ECHO: Final[str] = "echo"


class Kind(StrEnum):
    """Which question a case asks."""

    NEW = "init + sidecar + app"
    OTHER = "another demand each time"
    AGAIN = "the same pod again"
    REFUSED = "refused everywhere"
    GREEDY = "greedy finds none"


class Size(NamedTuple):
    """How many nodes a cluster has, and how many pods if it is not empty."""

    nodes: int
    pods: int

    @classmethod
    def parse(cls, text: str) -> Size:
        """Read a text such as "1000x10000". Raises ValueError."""
        nodes, _, pods = text.partition("x")
        size = cls(int(nodes), int(pods))
        if not 1 <= size.nodes <= 20_000 or not 0 <= size.pods <= 1_000_000:
            raise ValueError(text)
        return size

    def __str__(self) -> str:
        return f"{self.nodes}x{self.pods}"


class Summary(NamedTuple):
    """Nearest-rank percentiles in microseconds."""

    calls: int
    p50_us: int
    p90_us: int
    p99_us: int
    max_us: int

    @classmethod
    def of(cls, nanoseconds: Sequence[int]) -> Summary:
        ordered = sorted(nanoseconds)
        ranks = [-(-len(ordered) * percent // 100) - 1 for percent in (50, 90, 99, 100)]
        return cls(len(ordered), *((ordered[rank] + 500) // 1000 for rank in ranks))


class Step(NamedTuple):
    """One function's times on one cluster, in one process."""

    function: str
    nodes: int
    pods: int
    times: Summary

    def as_json(self) -> Json:
        return self._asdict() | {"times": self.times._asdict()}


class Figures(NamedTuple):
    """The summaries of one case, by server and part; parts that were never called are left out."""

    kind: Kind
    size: Size
    """The size that was asked for."""
    pods: int
    """The number of pods that hold cards."""
    passed: int
    """The number of nodes that passed the extender's filter in the last call."""
    summaries: dict[str, dict[str, Summary]]

    @property
    def nodes(self) -> int:
        return self.size.nodes

    @property
    def name(self) -> str:
        return f"{self.nodes:,} nodes, {self.pods:,} pods: {self.kind}"

    def pair(self, server: str = EXTENDER) -> Summary:
        return self.summaries[server][PAIR]

    def as_json(self) -> Json:
        servers = {
            server: {part: summary._asdict() for part, summary in parts.items()}
            for server, parts in self.summaries.items()
        }
        return self._asdict() | {
            "kind": self.kind.value,
            "size": str(self.size),
            "nodes": self.nodes,
            "summaries": servers,
        }
