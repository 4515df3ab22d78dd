"""Where more whole devices are used than there are, and by whom.

Why it exists: nobody is asked before a VM runs, a pod of another scheduler is bound or a node loses devices, so people
must be told of both sides. It must not change anything. Invariant: what the users have adds up to what is used.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from accounting.holders.hold import Hold
from accounting.holders.raw_devices import RawDevices
from accounting.holders.raw_values import Overcommitted, RawRequest
from accounting.holders.virtual_machine import VmiKey

Place = tuple[str, str]
"""Node and raw key."""
_Has = tuple[RawRequest, Mapping[str, int]]


def overcommitted_places(devices: RawDevices) -> list[Place]:
    """Return the nodes and keys of which more is used than there is, sorted."""
    found = []
    for key in devices.units.keys_in_use():
        have = devices.allocatable(key)
        found += [(node, key) for node, units in devices.units.of_key(key).items() if units > have.get(node, 0)]
    return sorted(found)


def overcommitted(devices: RawDevices, over: Sequence[Place] | None = None) -> list[Overcommitted]:
    """Return some of these places, by default all, with all who have some of what is used there."""
    over = overcommitted_places(devices) if over is None else over
    if not over:
        return []
    used, have = devices.units.on_nodes(), devices.allocatable
    pods, holds = _pods_on(devices, {node for node, _ in over}), _held_at(devices, set(over))
    return [
        Overcommitted(
            *(node, key, have(key).get(node, 0), used[node, key]),
            tuple(sorted(_users(key, pods.get(node, ()), holds.get((node, key), ())))),
            tuple(pod for pod, _ in pods.get(node, ()) if any(name == key for name, _ in pod.units)),
        )
        for node, key in over
    ]


def _pods_on(devices: RawDevices, nodes: set[str]) -> dict[str, list[_Has]]:
    """Return the pods of some nodes, by UID, with what each has beyond its VM's devices."""
    found: dict[str, list[_Has]] = {}
    for pod in sorted((pod for pod in devices.pods() if pod.node in nodes), key=lambda pod: pod.uid):
        found.setdefault(str(pod.node), []).append((pod, devices.beyond_holds(pod)))
    return found


def _held_at(devices: RawDevices, places: set[Place]) -> dict[Place, list[Hold]]:
    found: dict[Place, list[Hold]] = {}
    for holds in devices.holds().values():
        for hold in holds:
            if hold.node is not None and (hold.node, hold.key) in places:
                found.setdefault((hold.node, hold.key), []).append(hold)
    return found


def _users(key: str, pods: Iterable[_Has], holds: Iterable[Hold]) -> Iterator[str]:
    """Yield who has units of a key somewhere, by kind, name and units."""
    for pod, units in pods:
        if units.get(key):
            yield f"pod {pod.namespace}/{pod.name} {units[key]}"
    of_specs: dict[VmiKey, int] = {}
    for hold in holds:
        if hold.name:
            yield f"hold {hold.vmi.namespace}/{hold.name} {hold.units}"
        else:
            of_specs[hold.vmi] = of_specs.get(hold.vmi, 0) + hold.units
    for vmi, held in of_specs.items():
        yield f"vmi {vmi.namespace}/{vmi.name} {held}"
