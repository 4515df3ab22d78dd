"""The language of scenarios: a file that reads like a bug report.

It exists so that a new scenario is ten lines of data. It must not run anything. Invariant: a file that is read has only
verbs that exist; what is misspelt is an error that names the file and the word.

    title: a sidecar's share counts beside the app's
    source: HAMi#2584
    nodes: {n1: 1 card of 24}
    steps:
      - {create: {a: "sidecar 10, app 10"}, placed: a, held: {n1/0: 20}}
      - {create: {b: app 12}, refused: {b: InsufficientMemory}}
      - {finish: a, placed: b, within: 5}

Node: `N cards of MIB`, then optionally `slots N`, `cores N`, `count N` (the allocatable count; by default the sum of
the slots). `n[1-20]` names twenty nodes. Card 0 of node n1 is n1/0, its UUID GPU-n1-0.

Containers, in the order of the spec: `init`, `sidecar` or `app`, each with `MIB` (gpumem), `P%` (gpumem-percentage),
`whole` (a count only) or `nothing`; then optionally `xN` (N cards, by default 1) and `cores N`. They are named init1,
sidecar1, app1, app2 and so on. Inits and sidecars come before the apps, as in a spec.

A pod is such a text, or a mapping with it under `containers` and, where wanted, `annotations`, `labels`, `scheduler`,
`node` (a preset spec.nodeName), `only` (the one node that it may run on, as a DaemonSet's pod says it), `restart`,
`group` (the name of its PodGroup), `claim` (of a volume), `grace` (seconds) and `priority` (a number; a PriorityClass
of that value is made for it).

Beside `title`, `source`, `nodes` and `steps` a scenario may have `lock` (the lock modes, by default none alone),
`quotas`, `options` (of the extender), `replicas`, `lease_seconds`, `gates` (feature gates), `apis` (--runtime-config),
`since` and `until` (the first and the last minor that have what it needs), `scheduler` (fields of the profile in
kube-scheduler's configuration), `overcommits` (true where the story is about a card that is over-committed), `evicts`
(true where the extender itself evicts pods, and may), `times` (how often the steps are gone through, by default once)
and `quick` (part of .ci/run).

The verbs are the methods of `story.Story`; each says what it takes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.extender.objects import CORES, COUNT, MEMORY, PERCENTAGE, card, container, node

Json = dict[str, Any]
#: The argument of a verb, as YAML gives it.
Given = Any
SCENARIOS: Final = Path(__file__).with_name("scenarios")
_NODE: Final = re.compile(r"(\d+) cards? of (\d+)((?: (?:slots|cores|count) \d+)*)")
_CONTAINER: Final = re.compile(
    r"(init|sidecar|app) (?:(\d+)|(\d+)%|(whole)|(nothing))(?: x(\d+))?(?: cores (\d+))?",
)
_RANGE: Final = re.compile(r"(.*)\[(\d+)-(\d+)\]")
_POD_KEYS: Final = {
    "containers", "annotations", "labels", "scheduler", "node", "only", "restart", "group", "grace", "claim",
    "priority",
}  # fmt: skip


class Misspelt(ValueError):
    """Something that the language does not have."""


@dataclass(frozen=True)
class Scenario:
    """One story, and what it needs."""

    name: str
    number: int
    title: str
    nodes: Mapping[str, str]
    steps: Sequence[Mapping[str, Any]]
    lock: Sequence[str] = ("none",)
    quotas: Mapping[str, Mapping[str, int]] | None = None
    options: Sequence[str] = ()
    gates: Sequence[str] = ()
    apis: Sequence[str] = ()
    since: str = ""
    until: str = ""
    scheduler: Mapping[str, Any] | None = None
    replicas: int = 1
    lease_seconds: float | None = None
    overcommits: bool = False
    evicts: bool = False
    times: int = 1
    source: str = ""
    quick: bool = False


_TOP: Final = set(Scenario.__dataclass_fields__) - {"name", "number"}


def read_scenario(path: Path, verbs: set[str]) -> Scenario:
    """Read a file; its name begins with the number of its scenario. Raises Misspelt."""
    try:
        document = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise Misspelt(f"{path.name}: {error}") from None
    unknown = document.keys() - _TOP
    if unknown:
        raise Misspelt(f"{path.name}: {sorted(unknown)}: not one of {sorted(_TOP)}")
    scenario = Scenario(path.stem, int(path.stem.partition("-")[0]), **document)
    for text in scenario.nodes.values():
        node_of("x", text)
    for step in scenario.steps:
        for verb, argument in step.items():
            if verb not in verbs:
                raise Misspelt(f"{path.name}: {verb!r}: not one of {sorted(verbs)}")
            if verb == "create":
                for name, pod in argument.items():
                    pod_of(name, pod, "default")
    return scenario


def scenario_files() -> list[Path]:
    """All files, by number and name."""
    return sorted(SCENARIOS.glob("*.yaml"), key=lambda path: (int(path.stem.partition("-")[0]), path.stem))


# ------------------------------------------------------------------------------------------------------------- objects


def names_of(text: str) -> Iterator[str]:
    """n1, or n[1-20]."""
    found = _RANGE.fullmatch(text)
    if found is None:
        yield text
    else:
        yield from (f"{found[1]}{number}" for number in range(int(found[2]), int(found[3]) + 1))


def node_of(name: str, text: str) -> Json:
    """A node as its text says. Raises Misspelt."""
    found = _NODE.fullmatch(text)
    if found is None:
        raise Misspelt(f"node {name}: {text!r}: not like '2 cards of 24' or '1 card of 24 slots 10 cores 100 count 10'")
    number, memory = int(found[1]), int(found[2])
    more = dict(zip(*[iter(found[3].split())] * 2, strict=True))
    slots = int(more.get("slots", 10))
    cards = [
        card(f"GPU-{name}-{index}", index, memory=memory, slots=slots, cores=int(more.get("cores", 100)))
        for index in range(number)
    ]
    made = node(name, cards)
    count = more.get("count", str(number * slots))
    room = {"cpu": "64", "memory": "256Gi", "pods": "250", COUNT: count}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posted by a test"}
    made["status"] = {"capacity": room, "allocatable": dict(room), "conditions": [ready]}
    made["metadata"]["labels"] = {"kubernetes.io/hostname": name}
    return made


def pod_of(name: str, given: str | Mapping[str, Any], namespace: str, scheduler: str = "gpu-scheduler") -> Json:
    """A pod as its text or mapping says. Raises Misspelt."""
    pod: Mapping[str, Any] = {"containers": given} if isinstance(given, str) else given
    unknown = pod.keys() - _POD_KEYS
    if unknown:
        raise Misspelt(f"pod {name}: {sorted(unknown)}: not one of {sorted(_POD_KEYS)}")
    inits, apps = _containers(name, pod["containers"])
    spec: Json = {
        "schedulerName": pod.get("scheduler", scheduler),
        "automountServiceAccountToken": False,
        "restartPolicy": pod.get("restart", "Always"),
        "terminationGracePeriodSeconds": pod.get("grace", 1),
        "containers": apps,
    }
    if inits:
        spec["initContainers"] = inits
    if "node" in pod:
        spec["nodeName"] = pod["node"]
    if "only" in pod:
        spec |= _daemon(pod["only"])
    if "claim" in pod:
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": pod["claim"]}}]
    if "priority" in pod:
        spec["priorityClassName"] = priority_class(pod["priority"])
    if "group" in pod:
        spec["schedulingGroup"] = {"podGroupName": pod["group"]}
    meta = {"name": name, "namespace": namespace, "labels": dict(pod.get("labels", {}))}
    meta["annotations"] = dict(pod.get("annotations", {}))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def priority_class(value: int) -> str:
    """The name of the PriorityClass with a value."""
    return f"priority-{value}"


def priorities_in(scenario: Scenario) -> list[int]:
    """The priorities that a scenario's pods have."""
    made = [pod for step in scenario.steps for pod in step.get("create", {}).values()]
    bursts = [step["burst"] for step in scenario.steps if "burst" in step]
    return sorted({pod["priority"] for pod in (*made, *bursts) if isinstance(pod, Mapping) and "priority" in pod})


def _daemon(node_name: str) -> Json:
    """As the DaemonSet controller pins a pod to its node."""
    field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _containers(pod: str, text: str) -> tuple[list[Json], list[Json]]:
    inits: list[Json] = []
    apps: list[Json] = []
    for part in text.split(","):
        found = _CONTAINER.fullmatch(part.strip())
        if found is None:
            raise Misspelt(f"pod {pod}: {part.strip()!r}: not like 'init 20', 'sidecar 50%', 'app 10 x2 cores 30'")
        kind, memory, percentage, _, nothing, count, cores = found.groups()
        if kind != "app" and apps:
            raise Misspelt(f"pod {pod}: {part.strip()!r}: comes after an app")
        given = {COUNT: None if nothing else count or "1", MEMORY: memory, PERCENTAGE: percentage, CORES: cores}
        limits = {name: value for name, value in given.items() if value is not None}
        number = 1 + sum(one["name"].rstrip("0123456789") == kind for one in (*inits, *apps))
        made = container(f"{kind}{number}", {"limits": limits})
        (apps if kind == "app" else inits).append(made | ({"restartPolicy": "Always"} if kind == "sidecar" else {}))
    return inits, apps or [container("app1")]


def card_uuid(text: str) -> tuple[str, str]:
    """n1/0 as node and UUID."""
    name, _, index = text.partition("/")
    return name, f"GPU-{name}-{index}"
