"""Random events of pods, nodes, DRA claims and slices, compared with the reference again and again.

It exists because claims, slices and registers change in any order, and each decides what the others mean. It must not
know how the ledger counts. Invariant: as in `random_events`, whose world this one extends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from accounting.holders import Claim, DeviceId, Result, Slice, SliceDevice
from accounting.holders.dra_devices import HAMI_DRIVER, NVIDIA_DRIVER
from accounting.node import Node
from accounting.pod import Pod
from accounting.reference import claims as reference_claims
from accounting.reference import state as reference_state
from accounting.reference.claims import KnownDevice
from accounting.reference.state import Amounts, NodeState
from benchmarks.random_events import CARDS, NODES, Driver, World
from benchmarks.random_run import Summary, drive, same
from extender.cluster import Events, ResourceClaims

MIB = 1 << 20
MOST_CLAIMS = 60
#: Parts of a slice's name: NVIDIA's driver publishes devices in two slices, HAMi's in one.
_PARTS = ("a", "b", "h")


class ClaimWorld(World):
    """A cache with a ledger of claims, and the objects that both were told of."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = ResourceClaims(self.cache, Events())
        self.ledger.know_slices()
        self.claims: dict[str, Claim] = {}
        self.slices: dict[str, Slice] = {}
        self.known: dict[str, dict[DeviceId, KnownDevice]] = {}
        """By pool, what each device is; kept after the slice has gone for as long as claims refer to the pool."""
        self._pools: dict[str, set[str]] = {}
        """By claim, the pools of its devices."""
        self._held: dict[str, tuple[Node | None, object, reference_claims.Held]] = {}
        """By node, what claims hold there, with its object and the event since which they do."""

    # -- events -----------------------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> None:
        super().put_node(node)
        self.ledger.count_again(node.name)

    def remove_node(self, name: str) -> None:
        super().remove_node(name)
        self.ledger.count_again(name)

    def put_claim(self, claim: Claim) -> None:
        self.ledger.put(claim)
        before = self._pools.get(claim.uid, set())
        self.claims[claim.uid], self._pools[claim.uid] = claim, _nodes(claim)
        self._forget(before | _nodes(claim))

    def remove_claim(self, uid: str) -> None:
        self.ledger.remove(uid)
        self.claims.pop(uid, None)
        self._forget(self._pools.pop(uid, set()))

    def put_slice(self, new: Slice) -> None:
        self.ledger.put_slice(new)
        self.slices[new.name] = new
        known = self.known.setdefault(new.pool, {})
        for driver in (NVIDIA_DRIVER, HAMI_DRIVER):
            own = [each for each in self.slices_of(new.pool) if each.driver == driver]
            newest = max((each.generation for each in own), default=0)
            for each in own:
                if each.generation == newest:
                    known |= {DeviceId(driver, each.pool, device.name): _known(device) for device in each.devices}
        self._forget({new.pool})

    def remove_slice(self, name: str) -> None:
        self.ledger.remove_slice(name)
        gone = self.slices.pop(name, None)
        self._forget(set() if gone is None else {gone.pool})

    def slices_of(self, pool: str) -> list[Slice]:
        return [self.slices[name] for part in _PARTS if (name := f"{pool}-{part}") in self.slices]

    def _forget(self, pools: set[str]) -> None:
        """Forget the devices of pools that have no slice any more and that no claim refers to."""
        for pool in pools:
            self._last_change[pool] = object()
            if not any(pool in own for own in self._pools.values()):
                current = {
                    DeviceId(each.driver, pool, device.name) for each in self.slices_of(pool) for device in each.devices
                }
                known, partly = self.known.get(pool, {}), self._partly_seen(pool)
                self.known[pool] = {key: each for key, each in known.items() if key in current or key.driver in partly}

    def _partly_seen(self, pool: str) -> set[str]:
        """The drivers of which slices of the newest generation are missing."""
        found = set()
        for driver in (NVIDIA_DRIVER, HAMI_DRIVER):
            own = [each for each in self.slices_of(pool) if each.driver == driver]
            newest = [each for each in own if each.generation == max(other.generation for other in own)]
            if newest and len(newest) < max(each.count for each in newest):
                found.add(driver)
        return found

    # -- comparing --------------------------------------------------------------------------------------------------

    def held_on(self, name: str) -> reference_claims.Held:
        """Return what claims hold on a node. It follows from the node, the claims and the slices alone."""
        node, change = self.nodes.get(name), self._last_change.get(name)
        last = self._held.get(name)
        if last is None or last[0] is not node or last[1] is not change:
            last = self._held[name] = node, change, self._held_now(name)
        return last[2]

    def _held_now(self, name: str) -> reference_claims.Held:
        node = self.nodes.get(name)
        cards = () if node is None else node.devices
        sizes = {each.uuid: Amounts(each.slots, each.memory, each.cores) for each in cards}
        claims = [self.claims[uid] for uid, pools in self._pools.items() if name in pools]
        return reference_claims.held_on(name, claims, self.known.get(name, {}), sizes)

    def new_state_of(self, name: str, on: Sequence[Pod]) -> NodeState:
        held = self.held_on(name)
        return reference_state.node_state(self.nodes.get(name), on, held.parts, unmapped=bool(held.unmapped))

    def check(self, names: Iterable[str] | None = None) -> None:
        super().check(names)
        for name in NODES if names is None else names:
            have = [(claim, device) for claim, device in self.cache.claimed.unmapped(name)]
            same(f"unmapped on {name}", have, self.held_on(name).unmapped)


def _known(device: SliceDevice) -> KnownDevice:
    texts, sizes = device.attributes, device.capacity
    is_mig = texts["type"] == "mig"
    uuid = texts["parentUUID"] if is_mig else texts["uuid"]
    return KnownDevice(uuid, is_mig, sizes.get("memory", 0), sizes.get("multiprocessors", 0))


def run(events: int, seed: int, check_every: int, progress: Callable[[int], object] | None = None) -> Summary:
    """Send that many events; the nodes concerned are compared after each, everything after each `check_every`."""
    return drive(ClaimDriver(seed), seed, events, check_every, progress)


class ClaimDriver(Driver):
    """Draws events of claims and slices beside those of pods and nodes."""

    world: ClaimWorld

    def __init__(self, seed: int) -> None:
        super().__init__(seed, ClaimWorld())
        # Questions cost most, and `random_events` asks enough.
        self.kinds = {kind: weight // 5 or 1 for kind, weight in self.kinds.items()}
        self.kinds |= {self.change_claim: 40, self.end_claim: 15, self.change_slice: 15, self.end_slice: 5}
        for name in NODES:
            for part in _PARTS:
                self.world.put_slice(self.slice(name, part))

    def is_looked_at(self) -> bool:
        """True after every fourth event: what is wrong about a claim stays wrong until the claim changes."""
        return self.chance(4)

    def change_claim(self) -> set[str]:
        """A claim gets devices, gets others, or loses all of them; now and then it is shown again unchanged."""
        world = self.world
        self.serial += 1
        known = bool(world.claims) and (self.chance(3) or len(world.claims) > MOST_CLAIMS)
        uid = self.random.choice(sorted(world.claims)) if known else f"c{self.serial}"
        before = world.claims.get(uid)
        name = self.random.choice(NODES)
        results = () if self.chance(6) else tuple(self.result(name) for _ in range(self.random.randint(1, 3)))
        self.tell(world.put_claim, Claim(uid, "a", uid, results, name if self.chance(2) else None))
        return {name} | _nodes(before)

    def end_claim(self) -> set[str]:
        """A claim is deleted, perhaps one that is already forgotten."""
        world = self.world
        uid = self.random.choice(sorted(world.claims)) if world.claims else "none"
        before = world.claims.get(uid)
        self.tell(world.remove_claim, uid)
        return _nodes(before)

    def change_slice(self) -> set[str]:
        """A driver publishes a slice: the same generation, a newer one, or, late, an older one."""
        name = self.random.choice(NODES)
        self.tell(self.world.put_slice, self.slice(name, self.random.choice(_PARTS)))
        return {name}

    def end_slice(self) -> set[str]:
        """A driver withdraws a slice."""
        slice_name = f"{self.random.choice(NODES)}-{self.random.choice(_PARTS)}"
        self.tell(self.world.remove_slice, slice_name)
        return {slice_name.partition("-")[0]}

    def slice(self, node: str, part: str) -> Slice:
        generation = self.random.choice((1, 1, 2, 3))
        driver = HAMI_DRIVER if part == "h" else NVIDIA_DRIVER
        numbers = range(CARDS) if part == "h" else range(CARDS // 2) if part == "a" else range(CARDS // 2, CARDS)
        devices = [each for number in numbers if not self.chance(6) for each in self.devices(node, number, part)]
        count = 1 if part == "h" else self.random.choice((1, 2, 2, 3))
        return Slice(f"{node}-{part}", driver, node, generation, node, tuple(devices), count)

    def devices(self, node: str, number: int, part: str) -> list[SliceDevice]:
        # Now and then a card is replaced by another one in the same place.
        uuid = "GPU-roaming" if self.chance(20) else f"GPU-{node}-{number}"
        if part == "h":
            return [SliceDevice(f"hami-gpu-{number}", {"type": "hami-gpu", "uuid": uuid}, {"memory": 16 * MIB})]
        whole = SliceDevice(f"gpu-{number}", {"type": "gpu", "uuid": uuid}, {"memory": 16 * MIB})
        if not self.chance(3):
            return [whole]
        parts = [("1g.5gb-19-0", 3, 14), ("2g.10gb-14-4", 5, 28), ("7g.40gb-0-0", 16, 98)]
        return [whole] + [
            SliceDevice(
                f"gpu-{number}-mig-{name}",
                {"type": "mig", "parentUUID": uuid},
                {"memory": memory * MIB - 1, "multiprocessors": multiprocessors},
            )
            for name, memory, multiprocessors in parts
        ]

    def result(self, node: str) -> Result:
        number, admin = self.random.randrange(CARDS + 1), self.chance(12)
        kind = self.random.randrange(10)
        if kind == 0:
            return Result(DeviceId("nic.example.com", node, "nic-0"))
        if kind < 3:
            return Result(DeviceId(NVIDIA_DRIVER, node, f"gpu-{number}"), admin)
        if kind < 5:
            profile = self.random.choice(("1g.5gb-19-0", "2g.10gb-14-4", "3g.20gb-9-4"))
            return Result(DeviceId(NVIDIA_DRIVER, node, f"gpu-{number}-mig-{profile}"), admin)
        memory = None if self.chance(6) else self.random.randint(0, 8 * MIB)
        cores = None if self.chance(6) else self.random.choice((0, 10, 30))
        return Result(DeviceId(HAMI_DRIVER, node, f"hami-gpu-{number}"), admin, f"s{number}", memory, cores)


def _nodes(claim: Claim | None) -> set[str]:
    """Return the nodes of a claim's GPU devices; each node is a pool."""
    results = () if claim is None else claim.results
    return {each.device.pool for each in results if each.device.driver in (NVIDIA_DRIVER, HAMI_DRIVER)}
