"""Each rule of manifests/live/rbac.yaml is taken away in turn, and the thing that then fails, and only that, says so.

It exists because a rule that is never missed is one too many, and because the extender's own words must show which one
is missing. It must not know how the extender asks. Invariants: every rule of the file has its row here; with the rule
given back, what failed works again without a restart.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import pytest
import yaml

from tests.e2e.control_plane import ControlPlane
from tests.e2e.language import Scenario
from tests.e2e.processes import ROOT
from tests.e2e.story import Story
from tests.e2e.telling import Json
from tests.e2e.test_holders import DRA, FOUND_SECONDS, KUBEVIRT, VMIS, Holders, clean, install_crd
from tests.e2e.world import World
from tests.extender.dra import gpu, resource_claim, resource_slice, result
from tests.extender.vmis import K, vmi

_MANIFEST: Final = ROOT / "manifests" / "live" / "rbac.yaml"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_ACCOUNT: Final = "system:serviceaccount:kube-system:gpu-extender"
_PATIENCE_SECONDS: Final = 60.0
_SERIOUS: Final = ("warning", "error", "critical")


class _Holder(NamedTuple):
    """Objects that may hold cards: with the rule one of them counts, without it none, and that is said."""

    resources: tuple[str, ...]
    """As readiness and verify name them."""
    make: Callable[[Holders], Awaitable[None]]
    path: str
    """The list that has it."""
    options: tuple[str, ...] = ()


async def _make_claim(cluster: Holders) -> None:
    await cluster.kube.send("POST", f"{DRA}/resourceslices", resource_slice(gpu("gpu-0", "GPU-n1-0", memory="48Mi")))
    await cluster.claim(resource_claim("taker", result("gpu-0"), node="n1"))


async def _make_machine(cluster: Holders) -> None:
    await install_crd(cluster.world, KUBEVIRT, VMIS)
    await cluster.virtual_machine(vmi("a", units=1, node="n1"))


async def _make_nothing(_: Holders) -> None:
    """Make nothing: what classes map only decides how admission reads a resource's name."""


class Row(NamedTuple):
    """What is missing without a rule."""

    says: tuple[str, ...]
    """Events of the log, at info or above, of which there must be one."""
    steps: tuple[Mapping[str, Any], ...]
    """What goes wrong, or goes on as ever."""
    then: tuple[Mapping[str, Any], ...] = ()
    """What must be true once the rule is back."""
    is_ready: bool = True
    holder: "_Holder | None" = None
    """What is not seen without the rule."""
    also: tuple[str, ...] = ()
    """Serious events that may come with it."""
    lock: str = "none"


def _key(rule: Json) -> str:
    return f"{'+'.join(rule['verbs'])} {'+'.join(rule['resources'])}"


_PLACED: Final = ({"create": {"a": "app 10"}, "placed": "a"},)
_ROWS: Final[Mapping[str, Row]] = {
    "list+watch nodes+pods+resourcequotas": Row(("list or watch failed",), (), _PLACED, is_ready=False),
    # A pod is read when its Binding met another version of it.
    "get nodes+pods": Row(
        (),
        (
            {"bindings": "held", "create": {"a": "app 10"}, "on its way": "a"},
            {"annotate": {"a": {"example.com/touched": "yes"}}, "bindings": "allowed"},
            {"failed": {"a": "forbidden"}, "within": 30},
        ),
        ({"placed": "a", "within": 60},),
    ),
    "list+watch poddisruptionbudgets": Row(("list or watch failed",), _PLACED, ()),
    "list+watch deviceclasses": Row(
        ("resource may not be read",),
        _PLACED,
        holder=_Holder(("deviceclasses.resource.k8s.io",), _make_nothing, ""),
        also=("list or watch failed",),
    ),
    "list+watch virtualmachineinstances": Row(
        ("resource may not be read",),
        _PLACED,
        holder=_Holder(("virtualmachineinstances.kubevirt.io",), _make_machine, "/api/v1/holds", ("--raw-key", K)),
        # The node has no such device, and the CRD is deleted at the end.
        also=("resource not served any more", "list or watch failed", "whole devices over-committed"),
    ),
    "list+watch resourceclaims+resourceslices": Row(
        ("resource may not be read",),
        _PLACED,
        holder=_Holder(
            ("resourceclaims.resource.k8s.io", "resourceslices.resource.k8s.io"), _make_claim, "/api/v1/claims"
        ),
        also=("list or watch failed",),
    ),
    "create pods/binding": Row(
        (), ({"create": {"a": "app 10"}, "failed": {"a": "forbidden"}},), ({"placed": "a", "within": 60},)
    ),
    # kube-scheduler does not look at quotas, so only a wake makes it ask again.
    "patch pods": Row(
        ("pod cannot be woken",),
        (
            {"quotas": {"gpus": {"limits.nvidia.com/gpumem": 5}}},
            {"create": {"a": "app 10"}, "refused": {"a": "QuotaExceeded"}},
            {"quotas": {"gpus": {"limits.nvidia.com/gpumem": 30}}, "stays pending": {"a": 3}},
        ),
        ({"quotas": {"gpus": {"limits.nvidia.com/gpumem": 31}}, "placed": "a", "within": 30},),
    ),
    "patch nodes": Row(
        (),
        ({"create": {"a": "app 10"}, "failed": {"a": "forbidden"}},),
        ({"placed": "a", "within": 60},),
        lock="hami",
    ),
    "create+patch events": Row(
        ("event not written",), ({"create": {"a": "app 90"}, "refused": {"a": "InsufficientMemory"}}, *_PLACED[:0]), ()
    ),
    "create leases": Row(("Lease cannot be written",), (), _PLACED, is_ready=False),
    "get+update leases": Row(("Lease cannot be read",), (), _PLACED, is_ready=False),
}


def _roles() -> list[Json]:
    return [each for each in yaml.safe_load_all(_MANIFEST.read_text()) if each and "rules" in each]


RULES: Final = [(role, number) for role in _roles() for number in range(len(role["rules"]))]


@contextmanager
def _without(plane: ControlPlane, role: Json, number: int) -> Iterator[Callable[[], None]]:
    """Take a rule away until the returned function is called, or to the end."""
    rule = role["rules"][number]
    rest = [each for at, each in enumerate(role["rules"]) if at != number]

    def give_back() -> None:
        plane.apply(role)
        _wait_until(plane, role, rule, allowed=True)

    plane.apply(role | {"rules": rest})
    try:
        _wait_until(plane, role, rule, allowed=False)
        yield give_back
    finally:
        give_back()


def _wait_until(plane: ControlPlane, role: Json, rule: Json, *, allowed: bool) -> None:
    """Wait until the API server judges by the role as it is now: it follows roles by a watch of its own."""
    resource, _, subresource = rule["resources"][0].partition("/")
    asked = {
        "verb": rule["verbs"][0],
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "namespace": role["metadata"].get("namespace", "default"),
        "name": (rule.get("resourceNames") or [""])[0],
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": _ACCOUNT, "resourceAttributes": asked},
    }
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        _, text = plane.request("POST", _REVIEWS, review)
        if bool(yaml.safe_load(text)["status"].get("allowed")) is allowed:
            return
        assert time.monotonic() < end, f"{asked} stays as it was"
        time.sleep(0.1)


class _Patient(World):
    """A cluster whose extender possibly never gets ready."""

    def _wait_ready(self) -> None:
        """Do not wait."""


def _logged(world: World) -> list[Json]:
    lines = world.extenders[0].child.log.read_bytes().splitlines()
    return [orjson.loads(line) for line in lines if line.startswith(b"{")]


def _serious(world: World) -> set[str]:
    return {str(line["event"]) for line in _logged(world) if line.get("level") in _SERIOUS}


async def _unseen(cluster: Holders, holder: _Holder, give_back: Callable[[], None]) -> None:
    """What holds cards does not count while it may not be seen, which is said; with the rule back it counts."""

    async def said(*resources: str) -> bool:
        found = (await cluster.world.extender.get("/api/v1/verify"))["problems"]
        unseen = sorted(each["object"] for each in found if each["code"] == "UnseenResource")
        return unseen == [f"resource {each}" for each in resources]

    async def counts() -> bool:
        return not holder.path or len(await cluster.world.extender.get(holder.path)) == 1

    try:
        await holder.make(cluster)
        await cluster.holds(
            lambda: said(*holder.resources), f"{holder.resources} are said not to be seen", FOUND_SECONDS
        )
        assert not holder.path or await cluster.world.extender.get(holder.path) == []
        await asyncio.to_thread(give_back)
        await cluster.holds(counts, f"{holder.path} has one with the rule back", FOUND_SECONDS)
        await cluster.holds(said, "all is seen with the rule back", FOUND_SECONDS)
    finally:
        await clean(cluster.world)


async def _until(holds: Callable[[], bool | Awaitable[bool]], what: str) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < end, what
        await asyncio.sleep(0.2)


async def _steps(story: Story, steps: Sequence[Mapping[str, Any]]) -> None:
    for number, step in enumerate(steps, 1):
        await story._take(number, step)


def test_every_rule_has_its_row() -> None:
    assert sorted(_key(role["rules"][number]) for role, number in RULES) == sorted(_ROWS)


@pytest.mark.scenario("rbac")
@pytest.mark.parametrize("role, number", RULES, ids=[_key(role["rules"][at]) for role, at in RULES])
async def test_without_a_rule_one_thing_fails_and_says_so(
    plane: ControlPlane, folder: Path, role: Json, number: int
) -> None:
    row = _ROWS[_key(role["rules"][number])]
    options = ["--lock-mode", row.lock, "--log-format", "json", "--lease-duration", "6"]
    options += row.holder.options if row.holder is not None else ()
    with _without(plane, role, number) as give_back:
        async with (World if row.is_ready else _Patient)(plane, folder, options=options) as world:
            story = Story(Scenario("rbac", 0, "", {}, ()), world)
            await story.nodes({"n1": "1 card of 48"})
            if row.holder is not None:
                await _unseen(Holders(world), row.holder, give_back)
            await _steps(story, row.steps)
            said = {text for text in row.says if text not in {line["event"] for line in _logged(world)}}
            if said:
                await _until(
                    lambda: set(row.says) <= {line["event"] for line in _logged(world)}, f"{said}: never logged"
                )
            assert world.extenders[0].is_ready() is row.is_ready
            assert _serious(world) <= {*row.says, *row.also}, _serious(world)
            await asyncio.to_thread(give_back)
            if not row.is_ready:
                await _until(world.extenders[0].is_ready, "it does not get ready with the rule back")
            await _steps(story, row.then)
