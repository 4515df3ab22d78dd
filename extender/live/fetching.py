"""Reading a whole cluster from the API server, once.

Why it exists: `verify --kubeconfig` must report of a cluster what `verify --cluster` reports of its dump. It must not
watch. Invariant: the objects are read by the same code as those of files, so the reports are the same.
"""

from dataclasses import dataclass, field
from http import HTTPStatus

from accounting.holders import VirtualMachineInstance
from accounting.node import Node
from accounting.pod import Pod
from accounting.quota import Quota
from accounting.status import Problem, ProblemCode
from extender.cluster import DraObjects, Objects, collect, garbage_collector_paused
from extender.config import Settings
from extender.convert import InputError, parse_manifests
from extender.kube.client import KubeClient, WatchFailed
from extender.kube.discovery import OptionalResource, served_version
from extender.kube.listing import Expired, ListSettings, Page, list_pages
from extender.kube.paths import NODES, PODS, RESOURCE_QUOTAS, api_path
from extender.live.app import RUNNING_PODS
from extender.live.watching import DRA_RESOURCES, VMIS
from extender.wire.shallow import shallow

_TRIES = 3
#: Pods first: then a node that is created in between has no pods in the list, but the node of each pod is there.
_RESOURCES: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Pod", api_path(PODS), RUNNING_PODS),
    ("Node", api_path(NODES), {}),
    ("ResourceQuota", api_path(RESOURCE_QUOTAS), {}),
)


@dataclass(slots=True)
class _Fetched:
    nodes: list[Node] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    quotas: list[Quota] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    dra: DraObjects = field(default_factory=DraObjects)
    vmis: list[VirtualMachineInstance] = field(default_factory=list)

    def add(self, objects: Objects) -> None:
        self.nodes += objects.nodes
        self.pods += objects.pods
        self.quotas += objects.quotas
        self.problems += objects.problems
        self.dra.add(objects.dra)
        self.vmis += objects.vmis

    def objects(self) -> Objects:
        nodes, pods, quotas = tuple(self.nodes), tuple(self.pods), tuple(self.quotas)
        return Objects(nodes, pods, quotas, tuple(self.problems), vmis=tuple(self.vmis), dra=self.dra)


async def fetch_objects(client: KubeClient, settings: Settings, lists: ListSettings | None = None) -> Objects:
    """List pods, nodes, quotas, what there is of DRA, and VMIs if raw keys are counted.

    Raises `WatchFailed`, and `Expired` if a list grew too old several times. Of those that not every
    API server has, what may not be listed is a problem of the objects.
    """
    found = _Fetched()
    with garbage_collector_paused():
        for kind, path, query in _RESOURCES:
            found.add(await _fetch(client, kind, path, query, settings, lists or ListSettings()))
        optional = DRA_RESOURCES | ({"VirtualMachineInstance": VMIS} if settings.raw_keys else {})
        for kind, wanted in optional.items():
            await _add_optional(found, client, kind, wanted, settings, lists or ListSettings())
    return found.objects()


async def _add_optional(
    found: _Fetched,
    client: KubeClient,
    kind: str,
    wanted: OptionalResource,
    settings: Settings,
    lists: ListSettings,
) -> None:
    """List a resource if the API server has it and shows it."""
    version = await served_version(client, wanted)
    if version is None:
        raise WatchFailed(0, f"the API server does not say whether it has {wanted.name}")
    try:
        if version:
            found.add(await _fetch(client, kind, wanted.path(version), {}, settings, lists))
    except WatchFailed as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        message = "may not be listed: none of them counts"
        found.problems.append(Problem(ProblemCode.UNSEEN_RESOURCE, f"resource {wanted.name}", message))
        found.dra.slices_known &= kind != "ResourceSlice"


async def _fetch(
    client: KubeClient, kind: str, path: str, query: dict[str, str], settings: Settings, lists: ListSettings
) -> Objects:
    for _ in range(_TRIES - 1):
        try:
            return await _fetch_once(client, kind, path, query, settings, lists)
        except Expired:
            continue
    return await _fetch_once(client, kind, path, query, settings, lists)


async def _fetch_once(
    client: KubeClient, kind: str, path: str, query: dict[str, str], settings: Settings, lists: ListSettings
) -> Objects:
    found = _Fetched()
    async for page in list_pages(client, path, query, lists):
        found.add(_converted(kind, page, settings))
    return found.objects()


def _converted(kind: str, page: Page, settings: Settings) -> Objects:
    body = b'{"kind":"%bList","items":[%b]}' % (kind.encode(), b",".join(map(bytes, page.items)))
    try:
        return collect(parse_manifests(body, "--kubeconfig", kind), settings)
    except InputError:
        # A page that could just be decoded may be nested too deeply for a reader that is called from further down.
        return collect(parse_manifests(shallow(body), "--kubeconfig", kind), settings)
