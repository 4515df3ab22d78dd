"""Measures how much less pods hold when their inits take the cards that add least, on random pods and nodes.

It exists to show what the rule gains, and how far it is from the best possible. Apart from the two rules that it
compares with, it must not choose cards otherwise than fitting does. Invariant: sidecars and apps keep their cards, so
only the inits' choice differs.

    python -m benchmarks.footprint [--nodes 20000] [--seed N] [-o docs/footprint.json]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import orjson

from accounting.answers.allocate import allocate
from accounting.cards.assignment import Assignment
from accounting.cards.card_fit import fitting_cards, memory_of
from accounting.cards.footprint import Footprint
from accounting.cards.greedy import Preference, choose
from accounting.cards.selection_mask import accepted
from accounting.holdings import device_uses
from accounting.pod import Allocation, ContainerKind, DeviceRow, Pod
from accounting.state.snapshot import Snapshot, View
from benchmarks import placement_oracle
from benchmarks.placement_cases import Case, Size, case

_SIZE: Final = Size(cards=6, containers=5, cards_each=2, nodes=20, idle=0.7)
_FIRST_SEED: Final = 5_000_000
#: If a pod's inits can be placed in more ways than this, they are not tried.
_MOST_WAYS: Final = 2_000
PLAIN, SPEC_ORDER, OURS, LEAST = "by policy alone", "least growth, in spec order", "ours", "least there is"


class Held(NamedTuple):
    """Sums over cards at the peak."""

    memory: int = 0
    cores: int = 0
    slots: int = 0

    def plus(self, other: Held) -> Held:
        """Return the sums of both."""
        return Held(*map(sum, zip(self, other, strict=True)))


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    pods, sums, at_least = 0, {rule: Held() for rule in (PLAIN, SPEC_ORDER, OURS, LEAST)}, 0
    less_than_plain = 0
    for number in range(options.nodes // _SIZE.nodes):
        for found in _of_case(case(_FIRST_SEED * (options.seed + 1) + number, _SIZE)):
            pods += 1
            sums = {rule: held.plus(found[rule]) for rule, held in sums.items()}
            at_least += found[OURS] == found[LEAST]
            less_than_plain += found[OURS] < found[PLAIN]
            assert found[LEAST] <= found[OURS] <= found[SPEC_ORDER], (number, found)
    report: dict[str, object] = {"pods": pods, "least there is": at_least, "less than by policy alone": less_than_plain}
    report |= {rule: held._asdict() for rule, held in sums.items()}
    if options.output is not None:
        options.output.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    print(f"{pods:,} pods with inits that fit a node; what they hold at their peak, summed over cards")
    for rule, held in sums.items():
        print(f"  {rule:<28} {held.memory:>10,} MiB {held.cores:>9,} percent {held.slots:>8,} slots")
    saved = 100 * (1 - sums[OURS].memory / sums[PLAIN].memory)
    over = 100 * (sums[OURS].memory / sums[LEAST].memory - 1)
    print(f"  ours holds {saved:.1f} percent less memory than by policy alone, {over:.2f} percent more than the least")
    print(f"  {at_least:,} of {pods:,} pods hold the least there is, {less_than_plain:,} less than by policy alone")
    return 0


def _of_case(asked: Case) -> Iterator[dict[str, Held]]:
    """Yield what the pod would hold under each rule, for every node of the case where it fits."""
    pod = asked.pod
    if not any(each.kind is ContainerKind.INIT and each.request for each in pod.containers):
        return
    cache = asked.cache()
    snapshot = cache.snapshot()
    for node in asked.nodes:
        row, uuids = snapshot.rows[node.name], {at: uuid for uuid, at in cache.positions(node.name).items()}
        placement = allocate(snapshot, pod, row, uuids)
        ways = None if placement is None else _ways(asked, node.name, placement.allocation)
        if placement is None or ways is None:
            continue
        view = snapshot.take(np.array([row]))
        yield {
            OURS: _held(pod, placement.allocation),
            PLAIN: _held(pod, _one_by_one(view, pod, snapshot, placement.allocation, uuids, least_growth=False)),
            SPEC_ORDER: _held(pod, _one_by_one(view, pod, snapshot, placement.allocation, uuids, least_growth=True)),
            LEAST: min(_held(pod, way) for way in ways),
        }


def _held(pod: Pod, allocation: Allocation) -> Held:
    peak, _ = device_uses(pod.containers, allocation)
    return Held(sum(use.memory for use in peak), sum(use.cores for use in peak), sum(use.slots for use in peak))


def _one_by_one(
    view: View, pod: Pod, snapshot: Snapshot, placed: Allocation, uuids: dict[int, str], *, least_growth: bool
) -> Allocation:
    """Choose the inits' cards again, in spec order, beside the sidecars that are placed."""
    positions = {uuid: at for at, uuid in uuids.items()}
    preference = Preference(pod.policies, numa_bind=pod.selection.numa_bind).on(view)
    mask, mutex = accepted(view, pod.selection, snapshot), pod.policies.card.mutex
    copy, shared, allocation = Assignment.of(view), Assignment.of(view), list(placed)
    for place, rows in enumerate(placed):
        if pod.containers[place].kind is not ContainerKind.INIT:
            _book(shared, rows, positions)
    merged = Footprint(shared)
    for place, container in enumerate(pod.containers):
        request = container.request
        if request is None or container.kind is not ContainerKind.INIT:
            _book(copy, placed[place], positions)
            continue
        cards = fitting_cards(view, copy, request, mask, mutex=mutex)
        growth = merged.growth(copy, view, request) if least_growth else None
        own = [int(chosen[0]) for chosen in choose(cards, request.count, view, copy, preference, growth)]
        memory = [int(np.max(memory_of(view, request, np.array([card])))) for card in own]
        allocation[place] = tuple(
            DeviceRow(uuids[card], size, request.cores) for card, size in zip(own, memory, strict=True)
        )
        fork = copy.fork()
        _book(fork, allocation[place], positions)
        merged.raise_to(fork)
    return tuple(allocation)


def _book(assignment: Assignment, rows: Sequence[DeviceRow], positions: dict[str, int]) -> None:
    for row in rows:
        assignment.book(np.array([positions[row.uuid]]), row.memory, row.cores)


def _ways(asked: Case, name: str, placed: Allocation) -> list[Allocation] | None:
    """Return every way to place the inits beside what is placed; None if there are too many."""
    node = next(node for node in asked.nodes if node.name == name)
    pod, options = asked.pod, []
    for place, rows in enumerate(placed):
        if pod.containers[place].kind is ContainerKind.INIT and pod.containers[place].request is not None:
            options.append(list(placement_oracle.rows_of_init(node, asked.uses[name], pod, placed, place)))
        else:
            options.append([rows])
    if np.prod([float(len(each)) for each in options]) > _MOST_WAYS:
        return None
    return list(product(*options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.footprint", description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=20_000, help="random nodes to ask (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the cases (%(default)s)")
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
