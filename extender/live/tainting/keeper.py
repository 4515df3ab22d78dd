"""One DeviceTaintRule for each DRA device of a card that a pod with an annotation holds (REQ-DRA10).

Why it exists: kube-scheduler asks nobody before it gives a claim a card, so the only way to tell it of a pod's share is
a taint. It must not decide who holds a card; the cache does. Invariants: only the leader writes; a rule of ours whose
card is free, or whose device is gone, is removed, also one of an earlier process; what could not be written is tried
again; rules of others are not touched.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus

from accounting.holders import DeviceId
from extender.cluster import Cluster
from extender.kube.client import Answer, Fenced, KubeClient, Unknown, WatchFailed
from extender.kube.discovery import OptionalResource, served_version
from extender.kube.listing import Expired, ListSettings, list_pages
from extender.kube.pace import Pace
from extender.kube.paths import Resource, api_path, group_path
from extender.live.leading import Leadership
from extender.live.tainting.rules import LABEL, LABEL_VALUE, name_of_rule, rule_name, rule_of
from extender.logs import logger

#: v1 since Kubernetes 1.37; v1beta2 since 1.36, where it is off by default.
TAINT_RULES = OptionalResource("resource.k8s.io", ("v1", "v1beta2"), "devicetaintrules")
_MINE = {"labelSelector": f"{LABEL}={LABEL_VALUE}"}
_WRITTEN = (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND)


@dataclass(frozen=True, slots=True)
class TaintSettings:
    """Times in seconds, with their reasons."""

    look_seconds: float = 0.2
    """Between two looks at what has changed: a claim may come at any time."""
    again_seconds: float = 5.0
    """Before what was refused is tried again."""
    absent_seconds: float = 60.0
    """Before the API is looked for again where it is not served."""
    request_seconds: float = 5.0


class TaintKeeper:
    """Keeps the rules of one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        client: KubeClient,
        leadership: Leadership,
        is_leading: Callable[[], bool],
        settings: TaintSettings | None = None,
    ) -> None:
        self.rules: dict[str, DeviceId | None] = {}
        """By name, those that exist; None: the device of one that was found is not known."""
        self._cluster = cluster
        self._client = client
        self._leadership = leadership
        self._is_leading = is_leading
        self._settings = settings or TaintSettings()
        self._dirty: set[str] = set()  # nodes on which something has changed
        self._node_of: dict[str, str] = {}  # UID of a pod with cards -> its node
        cluster.events.changed.subscribe(lambda event: self._pod_changed(event.uid))
        cluster.events.assumed.subscribe(lambda event: self._pod_changed(event.pod.uid))
        cluster.events.forgotten.subscribe(lambda event: self._pod_changed(event.uid))
        cluster.events.node_changed.subscribe(lambda event: self._dirty.add(event.name))
        cluster.events.devices_changed.subscribe(lambda event: self._dirty.add(event.node))

    async def run(self) -> None:
        """Keep them until cancelled."""
        while True:
            await asyncio.sleep(self._settings.look_seconds)
            if not self._is_leading():
                continue
            version = await served_version(self._client, TAINT_RULES)
            if version:
                await self._lead(version)
            else:
                await asyncio.sleep(self._settings.absent_seconds)

    async def _lead(self, version: str) -> None:
        """Bring all rules up to date, then those of nodes that change, while this replica leads."""
        if not await self._take_over(version):
            await asyncio.sleep(self._settings.again_seconds)
            return
        while self._is_leading():
            while self._dirty:
                node = min(self._dirty)
                self._dirty.discard(node)
                if not await self._bring_up_to_date(node, version):
                    self._dirty.add(node)
                    await asyncio.sleep(self._settings.again_seconds)
                    break
            await asyncio.sleep(self._settings.look_seconds)

    async def _take_over(self, version: str) -> bool:
        """Find the rules of earlier processes, and remove those that are not wanted any more."""
        path, found, pace = api_path(self._resource(version)), set[str](), Pace()
        try:
            async for page in list_pages(self._client, path, _MINE, ListSettings()):
                found |= {name_of_rule(raw) for raw in page.items}
        except (WatchFailed, Expired) as error:
            logger().warning("device taint rules cannot be listed", why=str(error))
            return False
        self._node_of = {uid: record.node for uid, record in self._cluster.cache.pods.items() if record.node}
        wanted: dict[str, DeviceId] = {}
        for node in self._cluster.cache.node_names():
            wanted |= {rule_name(device): device for device in self._wanted_on(node)}
            self._dirty.add(node)
            await pace.breathe()
        self.rules = {name: wanted.get(name) for name in found if name}
        done = [await self._remove(name, version) for name, device in sorted(self.rules.items()) if device is None]
        return all(done)

    async def _bring_up_to_date(self, node: str, version: str) -> bool:
        """Write what is missing for a node and remove what is too much; returns whether all of it was done."""
        wanted = {rule_name(device): device for device in self._wanted_on(node)}
        pools = self._cluster.resource_claims.pools_on(node) | {device.pool for device in wanted.values()} | {node}
        for name, device in [(name, device) for name, device in self.rules.items() if device is not None]:
            if device.pool in pools and name not in wanted and not await self._remove(name, version):
                return False
        for name in sorted(wanted.keys() - self.rules.keys()):
            if not await self._create(name, wanted[name], version):
                return False
        return True

    def _wanted_on(self, node: str) -> Iterator[DeviceId]:
        """Yield the devices of cards of a node on which pods have shares."""
        claims = self._cluster.resource_claims
        if not claims.has_devices(node):
            return
        held = {use.uuid for record in self._cluster.cache.pods_on(node) for use in record.held}
        for uuid in sorted(held):
            yield from claims.devices_of(node, uuid)

    async def _create(self, name: str, device: DeviceId, version: str) -> bool:
        path = api_path(self._resource(version))
        if not self._done("create", name, await self._send("POST", path, rule_of(device, version))):
            return False
        self.rules[name] = device
        return True

    async def _remove(self, name: str, version: str) -> bool:
        path = api_path(self._resource(version), name)
        if not self._done("delete", name, await self._send("DELETE", path, {})):
            return False
        self.rules.pop(name, None)
        return True

    async def _send(self, method: str, path: str, body: object) -> Answer | Unknown:
        seconds = self._settings.request_seconds
        if not self._leadership.may_write(seconds):
            return Unknown("this replica may not write now", sent=False)
        fenced = Fenced(json.dumps(body).encode(), lambda: self._leadership.may_write(0))
        return await self._client.request(method, path, body=fenced, timeout_seconds=seconds)

    def _done(self, verb: str, name: str, answer: Answer | Unknown) -> bool:
        """Whether a rule is as it should be: it was there already, or was gone already, as well."""
        if answer.ok or answer.status in _WRITTEN:
            return True
        why = f"{answer.status} {answer.message}"
        logger().warning("device taint rule cannot be written", verb=verb, rule=name, why=why)
        return False

    def _resource(self, version: str) -> Resource:
        return Resource(group_path(TAINT_RULES.group, version), TAINT_RULES.plural)

    def _pod_changed(self, uid: str) -> None:
        record = self._cluster.cache.pods.get(uid)
        before = self._node_of.pop(uid, None)
        now = record.node if record is not None else None
        if now is not None:
            self._node_of[uid] = now
        self._dirty |= {node for node in (before, now) if node is not None}
