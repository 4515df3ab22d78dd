"""The verbs of scenarios that make something happen.

It exists to turn a step of data into what a user, a node, a device plugin or a fault does. It must not expect anything.
Invariant: everything is done through the API server or to a process, as in a cluster.
"""

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import aiohttp
import orjson

from tests.apiserver.kubelets import Kubelets
from tests.e2e.language import Given, names_of, node_of, pod_of
from tests.e2e.telling import BUDGETS, PODS, QUOTAS, Json, Telling, as_list, by_node, without
from tests.e2e.world import NAMESPACE, Refusal
from tests.extender.objects import CORDON, REGISTER

_AT_ONCE: Final = 16
#: Fields of a card's registration, and of the extender's list of cards.
_SHOWN: Final = {"health": "healthy", "numa": "numa", "mode": "mode", "type": "type"}


class Doing(Telling):
    """Every public method is a verb."""

    async def nodes(self, given: Mapping[str, str]) -> None:
        """{NAME or n[1-20]: text}: nodes appear."""
        for names, text in given.items():
            for name in names_of(names):
                await self._kube.send("POST", "/api/v1/nodes", node_of(name, text))

    async def create(self, given: Mapping[str, Any]) -> None:
        """{POD: text or mapping}: pods are created, in this order."""
        for name, pod in given.items():
            await self._create_pod(pod_of(name, pod, NAMESPACE))

    async def burst(self, given: Mapping[str, Any]) -> None:
        """{pods: N, containers: text, name: PREFIX}: many equal pods are created, as fast as can be."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def create(number: int) -> None:
            async with limit:
                name = f"{given.get('name', 'p')}{number}"
                await self._create_pod(pod_of(name, without(given, ("pods", "name")), NAMESPACE))

        await asyncio.gather(*(create(number) for number in range(given["pods"])))

    async def quotas(self, given: Mapping[str, Mapping[str, int]]) -> None:
        """{QUOTA: {RESOURCE: HARD}}: quotas appear, with the status that the quota controller gives them at first."""
        for name, hard in given.items():
            texts = {resource: str(value) for resource, value in hard.items()}
            meta = {"name": name, "namespace": NAMESPACE}
            body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": texts}}
            with suppress(Refusal):
                await self._kube.send("DELETE", f"{QUOTAS}/{name}")
            await self._kube.send("POST", QUOTAS, body)
            # A limit counts only where the API server charges a pod for the name.
            status = {"hard": texts, "used": dict.fromkeys(texts, "0")}
            await self._kube.send("PATCH", f"{QUOTAS}/{name}/status", {"status": status})
            for resource, value in hard.items():
                if resource.startswith("requests."):
                    await self._counted(resource.removeprefix("requests."), value)

    async def _counted(self, resource: str, hard: int) -> None:
        """Wait until the API server's admission, which reads quotas from a cache, counts this one."""
        pod = pod_of("asks-too-much", "app nothing", NAMESPACE)
        pod["spec"]["containers"][0]["resources"] = {"limits": {resource: str(hard + 1)}}

        async def says() -> str:
            try:
                await self._kube.send("POST", f"{PODS}?dryRun=All", pod)
            except Refusal as refusal:
                return str(refusal)
            return "taken"

        await self._poll(says, lambda said: "" if "exceeded quota" in said else f"a pod beyond the quota: {said}")

    async def start(self, given: Mapping[str, Any]) -> None:
        """{POD: CONTAINER or list}: containers run from now on."""
        for pod, containers in given.items():
            await self._world.actor.start(NAMESPACE, pod, *as_list(containers))

    async def end(self, given: Mapping[str, Any]) -> None:
        """{POD: CONTAINER or list}: containers end with exit code 0."""
        for pod, containers in given.items():
            await self._world.actor.end(NAMESPACE, pod, *as_list(containers))

    async def fail(self, given: Mapping[str, Any]) -> None:
        """{POD: CONTAINER or list}: containers end with exit code 1."""
        for pod, containers in given.items():
            await self._world.actor.end(NAMESPACE, pod, *as_list(containers), exit_code=1)

    async def finish_inits(self, given: Given) -> None:
        """POD or list: every init runs and ends with 0, every sidecar starts in its turn; the apps do not start yet."""
        for pod in as_list(given):
            await self._world.actor.finish_inits(NAMESPACE, pod)

    async def run(self, given: Given) -> None:
        """POD or list: from the first init to running apps."""
        for pod in as_list(given):
            await self._world.actor.run(NAMESPACE, pod)

    async def finish(self, given: Given) -> None:
        """POD or list: apps end with 0, then sidecars are ended."""
        for pod in as_list(given):
            await self._world.actor.finish(NAMESPACE, pod)

    async def delete(self, given: Given) -> None:
        """POD or list: deleted, and let go by its kubelet."""
        for pod in as_list(given):
            self._note_deleted(pod)
            await self._kube.send("DELETE", f"{PODS}/{pod}", {"gracePeriodSeconds": 0})

    async def begin_delete(self, given: Given) -> None:
        """POD or list: deleted, but its containers have not ended yet."""
        for pod in as_list(given):
            self._note_deleted(pod)
            await self._kube.send("DELETE", f"{PODS}/{pod}")

    def _note_deleted(self, name: str) -> None:
        """Note that a step was the first to delete this pod, so that it does not count as a victim."""
        uid = self._uids.get(name, "")
        if uid not in self._world.audit.went:
            self._deleted.add(uid)

    async def budgets(self, given: Mapping[str, Mapping[str, Any]]) -> None:
        """{NAME: {labels: {KEY: VALUE}, allows: N}}: PodDisruptionBudgets appear.

        There is no disruption controller: how many evictions they allow is written by the scenario, and counted down by
        the API server.
        """
        for name, budget in given.items():
            spec = {"minAvailable": 0, "selector": {"matchLabels": dict(budget["labels"])}}
            meta = {"name": name, "namespace": NAMESPACE}
            kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
            await self.apply([kind | {"metadata": meta, "spec": spec}])
            await self.allow({name: budget["allows"]})

    async def allow(self, given: Mapping[str, int]) -> None:
        """{BUDGET: N}: a PodDisruptionBudget allows so many evictions from now on."""
        for name, number in given.items():
            found = await self._kube.send("GET", f"{BUDGETS}/{name}")
            counts = dict.fromkeys(("currentHealthy", "desiredHealthy", "expectedPods"), 0)
            status = counts | {"disruptionsAllowed": number, "observedGeneration": found["metadata"]["generation"]}
            await self._kube.send("PATCH", f"{BUDGETS}/{name}/status", {"status": status})

    async def kubelets(self, given: Mapping[str, Any] | None) -> None:
        """{run seconds: S} or nothing: from now on every bound pod is allocated and run by itself."""
        seconds = (given or {}).get("run seconds")
        kubelets = Kubelets(self._world.actor, seconds, lambda text: self._world.audit.note(f"kubelets: {text}"))
        self._world.beside.start(kubelets.follow())

    async def bind(self, given: Mapping[str, str]) -> None:
        """{POD: NODE}: another scheduler binds a pod, as the API server's Binding allows it to anybody."""
        for name, node in given.items():
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            await self._kube.send("POST", f"{PODS}/{name}/binding", body)

    async def annotate(self, given: Mapping[str, Mapping[str, str | None]]) -> None:
        """{POD: {KEY: TEXT or null}}: somebody edits a pod's annotations."""
        for name, texts in given.items():
            await self._kube.send("PATCH", f"{PODS}/{name}", {"metadata": {"annotations": texts}})

    async def apply(self, given: Sequence[Json]) -> None:
        """[manifest, ...]: any other objects are created; they are removed at the end."""
        for manifest in given:
            self._applied.append(manifest)
            await asyncio.to_thread(self._world.plane.apply, manifest)

    async def remove(self, given: Given) -> None:
        """KIND/NAME or list: such objects are removed."""
        for text in as_list(given):
            for manifest in [one for one in self._applied if f"{one['kind']}/{one['metadata']['name']}" == text]:
                self._applied.remove(manifest)
                await asyncio.to_thread(self._world.plane.remove, manifest)

    async def bindings(self, given: str) -> None:
        """denied, held or allowed: what a validating webhook on Bindings does from now on; held ones are let go."""
        await self._world.webhook.set(given)

    async def on_its_way(self, given: Given) -> None:
        """POD or list: its Binding has reached the webhook on Bindings."""

        async def missing() -> list[str]:
            return [name for name in as_list(given) if not self._world.webhook.asked[name]]

        await self._poll(missing, lambda names: f"no Binding came of {names}" if names else "")

    async def unhealthy(self, given: Given) -> None:
        """CARD or list: reported as unhealthy."""
        await self._edit_cards(given, {"health": False})

    async def healthy(self, given: Given) -> None:
        """CARD or list: reported as healthy."""
        await self._edit_cards(given, {"health": True})

    async def cards(self, given: Mapping[str, Json]) -> None:
        """{CARD: {FIELD: VALUE}}: a card is registered otherwise, such as with another mode, type or numa."""
        for card, change in given.items():
            await self._edit_cards(card, change)

    async def cordon(self, given: Given) -> None:
        """CARD or list: cordoned, the only ones of their nodes."""
        for name, uuids in by_node(given).items():
            await self._annotate_node(name, CORDON, ",".join(uuids))
            await self._shown(name, uuids, {"cordoned": True})

    async def uncordon(self, given: Given) -> None:
        """CARD or list: the cordon of their nodes is removed."""
        for name in by_node(given):
            await self._annotate_node(name, CORDON, None)

    async def count(self, given: Mapping[str, int]) -> None:
        """{NODE: N}: the allocatable count changes, as when the device plugin goes (0) or comes."""
        for name, number in given.items():
            status = {"status": {"allocatable": {"nvidia.com/gpu": str(number)}}}
            await self._kube.send("PATCH", f"/api/v1/nodes/{name}/status", status)

    async def kill(self, given: Given) -> None:
        """extender, `extender 1`, scheduler or `api server`: ended with SIGKILL."""
        for what in as_list(given):
            child = self._child(what)
            await asyncio.to_thread(child.kill)

    async def start_again(self, given: Given) -> None:
        """extender, `extender 1`, scheduler or `api server`: started again; it need not be ready yet."""
        for what in as_list(given):
            if what == "api server":
                self._child(what).start()
                await asyncio.to_thread(self._world.plane.wait_ready)
            elif what == "scheduler":
                self._world.start_scheduler()
            else:
                self._child(what).start()

    async def kill_leader(self, _: Given) -> None:
        """true: the replica that is ready is ended with SIGKILL."""
        leader = await asyncio.to_thread(lambda: self._world.extender)
        await asyncio.to_thread(leader.child.kill)

    async def measure(self, _: Given) -> None:
        """true: from now on processor time and calls are counted, up to `measured`."""
        self._measuring = time.monotonic(), await self._meters()

    async def ask_on_and_on(self, given: Mapping[str, Any]) -> None:
        """{pods: [POD, ...], per second: N}: filter is asked about them in turn, to the end of the scenario.

        As kube-scheduler 1.36 does for a gang with a member that fits nowhere; it asks some 1,300 times a second.
        """
        bodies = []
        names = sorted(self._world.audit.nodes)
        for name in given["pods"]:
            pod = await self._kube.send("GET", f"{PODS}/{name}")
            bodies.append(orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}))
        self._world.beside.start(self._ask(bodies, given["per second"]))

    async def _ask(self, bodies: Sequence[bytes], per_second: float) -> None:
        began = time.monotonic()
        async with aiohttp.ClientSession(self._world.extenders[0].url) as session:
            for number, body in enumerate(itertools.cycle(bodies)):
                await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
                async with session.post("/filter", data=body) as response:
                    await response.read()

    async def wait(self, seconds: float) -> None:
        """SECONDS: nothing is done."""
        await asyncio.sleep(seconds)

    async def _edit_cards(self, given: Given, change: Mapping[str, object]) -> None:
        for name, uuids in by_node(given).items():
            node = await self._kube.send("GET", f"/api/v1/nodes/{name}")
            cards = orjson.loads(node["metadata"]["annotations"][REGISTER])
            for card in cards:
                if card["id"] in uuids:
                    card.update(change)
            await self._annotate_node(name, REGISTER, orjson.dumps(cards).decode())
            await self._shown(name, uuids, {_SHOWN[key]: value for key, value in change.items() if key in _SHOWN})

    async def _shown(self, node: str, uuids: Sequence[str], wanted: Mapping[str, object]) -> None:
        """Wait until the extender has seen it, as the next step depends on it."""

        async def cards() -> list[Json]:
            listed = await self._world.extender.get("/api/v1/nodes")
            return [card for one in listed if one["node"] == node for card in one["devices"] if card["uuid"] in uuids]

        def differs(found: Sequence[Json]) -> str:
            seen = len(found) == len(uuids) and all(card[key] == wanted[key] for card in found for key in wanted)
            return "" if seen else f"the extender shows {found}, not {wanted}"

        await self._poll(cards, differs)

    async def _annotate_node(self, name: str, key: str, value: str | None) -> None:
        await self._kube.send("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"annotations": {key: value}}})
