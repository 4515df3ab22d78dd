"""The verbs of scenarios that say what must be true.

It exists so that a step says what a user sees and what is held. It must not change anything. Invariant: what is held is
what the slow reference computes from the API server's objects, and the extender's own lists must say the same.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from accounting.status import Code
from extender.verbs.texts import TEXT
from tests.e2e.audit import condition
from tests.e2e.language import Given, card_uuid, pod_of
from tests.e2e.telling import PODS, QUOTAS, Json, Telling, as_list, without
from tests.e2e.world import NAMESPACE, Refusal


class Expecting(Telling):
    """Every public method is a verb."""

    async def within(self, seconds: float) -> None:
        """SECONDS: how long the step may take to become true, wherever in the step it stands."""
        self._seconds = seconds

    async def placed(self, given: Given) -> None:
        """POD, list or {POD: NODE}: on a node, and PodScheduled."""
        wanted = given if isinstance(given, Mapping) else dict.fromkeys(as_list(given))
        for name, where in wanted.items():
            await self._is_placed(name)
            assert where in (None, self._node(name)), f"pod {name} is on node {self._node(name)}, not {where}"

    async def _is_placed(self, name: str) -> None:
        def is_scheduled() -> bool:
            return condition(self._pod(name)).get("status") == "True"

        await self._until(lambda: self._node(name), f"pod {name} is placed", lambda: condition(self._pod(name)))
        took = time.monotonic() - max(self._created_at.get(name, 0.0), self._step_began)
        self._figures.setdefault("placed after seconds", {})[name] = round(took, 3)
        await self._until(is_scheduled, f"pod {name} is PodScheduled", lambda: condition(self._pod(name)))

    async def placed_in_all(self, number: int) -> None:
        """N: at least so many pods are on nodes."""
        audit = self._world.audit
        await self._until(
            lambda: len(audit.placed()) >= number, f"{number} pods are placed", lambda: f"{len(audit.placed())} are"
        )
        seconds = max(audit.placed_at.values()) - min(audit.placed_at.values())
        self._figures["first to last placed, seconds"] = round(seconds, 2)

    async def victims(self, given: Given) -> None:
        """POD or list: these, and nobody else, have been deleted for others since the `victims` before.

        Nobody else may be until the end of the scenario either.
        """
        self._victims = sorted([*(self._victims or ()), *as_list(given)])
        await self._until(
            lambda: self._have_gone() == self._victims,
            f"victims are {self._victims}",
            lambda: f"{self._have_gone()} went",
        )

    async def refused(self, given: Mapping[str, str]) -> None:
        """{POD: TEXT}: unschedulable, with TEXT in the message that `kubectl describe pod` shows."""
        for name, text in given.items():
            await self._condition(name, "Unschedulable", text)

    async def says(self, given: Mapping[str, str]) -> None:
        """{POD: CODE or list}: the condition and an event have these codes, each once, with exactly their texts."""
        for name, codes in given.items():
            for code in as_list(codes):
                text = f"{code}: {TEXT[Code(code)]}"
                await self._condition(name, "Unschedulable", text)
                message = condition(self._pod(name))["message"]
                assert message.count(text) == 1, message
                await self.event({name: text})
            self._figures.setdefault("messages", {})[name] = condition(self._pod(name))["message"]

    async def says_the_same(self, given: Sequence[str]) -> None:
        """[POD, POD, ...]: refused for the same cause, and so with the same message."""
        messages = {condition(self._pod(name)).get("message") for name in given}
        assert len(messages) == 1, messages

    async def failed(self, given: Mapping[str, str]) -> None:
        """{POD: TEXT}: an attempt ended with an error (SchedulerError), with TEXT in the message."""
        for name, text in given.items():
            await self._condition(name, "SchedulerError", text)

    async def forbidden(self, given: Mapping[str, Any]) -> None:
        """{POD: {containers: text, why: TEXT}}: the API server does not take the pod."""
        for name, pod in given.items():
            said = "nothing: the pod was taken"
            try:
                await self._kube.send("POST", PODS, pod_of(name, without(pod, ("why",)), NAMESPACE))
            except Refusal as refusal:
                said = str(refusal)
            assert pod["why"] in said, said

    async def stays_pending(self, given: Mapping[str, float]) -> None:
        """{POD: SECONDS}: not placed for that long."""
        await asyncio.sleep(max(given.values()))
        for name in given:
            assert self._node(name) is None, f"pod {name} is on node {self._node(name)}"

    async def held(self, given: Given) -> None:
        """{CARD: MIB or [SLOTS, MIB, CORES]} or `nothing`: what is held of these cards, by objects and extender."""
        wanted = {} if given == "nothing" else {"/".join(card_uuid(card)): use for card, use in given.items()}
        everything = given == "nothing"

        def differs(held: Mapping[str, Sequence[int]]) -> str:
            for card in (held.keys() | wanted.keys()) if everything else wanted.keys():
                use, found = wanted.get(card, 0), tuple(held.get(card, (0, 0, 0)))
                if found != tuple(use) if isinstance(use, list) else found[1] != use:
                    return f"{card}: {found} is held, not {use}"
            return ""

        audit = self._world.audit
        await self._until(lambda: not differs(audit.held()), f"held: {given}", lambda: differs(audit.held()))
        await self._poll(self._extender_held, differs)

    async def account(self, given: Mapping[str, Mapping[str, Any]]) -> None:
        """{POD: {state:, peak:, steady:}}: what the extender's account says; peak and steady in MiB over all cards."""

        async def accounts() -> dict[str, Json]:
            listed = await self._world.extender.get("/api/v1/pods")
            return {one["pod"].partition("/")[2]: one for one in listed}

        def differs(found: Mapping[str, Json]) -> str:
            for name, wanted in given.items():
                for key, value in wanted.items():
                    said = found.get(name, {}).get(key)
                    said = sum(use["memory"] for use in said.values()) if isinstance(said, dict) else said
                    if said != value:
                        return f"account of pod {name}: {key} is {said}, not {value}"
            return ""

        await self._poll(accounts, differs)

    async def quota(self, given: Mapping[str, Mapping[str, int]]) -> None:
        """{RESOURCE: {hard:, used:, charged:}}: the limit, what we count, and what the API server itself charges.

        `charged` must be the extender's api_charge and, where the quota names `requests.`, the server's own number.
        """

        async def rows() -> dict[str, Json]:
            listed = await self._world.extender.get("/api/v1/quotas")
            found = {row["resource"]: dict(row) for row in listed if row["namespace"] == NAMESPACE}
            for item in await self._kube.items(QUOTAS):
                for resource, used in item["status"].get("used", {}).items():
                    name = resource.removeprefix("requests.")
                    if name != resource and name in found:
                        found[name]["server"] = int(used)
            return found

        def differs(found: Mapping[str, Json]) -> str:
            for resource, wanted in given.items():
                row = found.get(resource, {})
                said = {"hard": row.get("hard"), "used": row.get("used"), "charged": row.get("api_charge")}
                if said != said | dict(wanted):
                    return f"quota of {resource}: {row}, not {wanted}"
                if "charged" in wanted and row.get("server") not in (None, wanted["charged"]):
                    return f"quota of {resource}: the API server charges {row['server']}, not {wanted['charged']}"
            return ""

        await self._poll(rows, differs)

    async def event(self, given: Mapping[str, str]) -> None:
        """{POD: TEXT}: an event of the pod contains TEXT, and no event of it is garbled."""
        for name, text in given.items():

            async def notes(name: str = name) -> list[str]:
                path = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events?fieldSelector=regarding.name={name}"
                # A pod of an earlier scenario may have had the name.
                uid = self._uids.get(name)
                found = await self._kube.items(path)
                return [one.get("note", "") for one in found if uid in (None, one["regarding"].get("uid"))]

            def differs(found: Sequence[str], name: str = name, text: str = text) -> str:
                if any("%!" in note for note in found):
                    return f"an event of pod {name} is garbled: {found}"
                return "" if any(text in note for note in found) else f"events of pod {name}: {found}"

            await self._poll(notes, differs)

    async def measured(self, given: Mapping[str, float]) -> None:
        """{FIGURE: MOST or `at least N`}: since `measure`; every figure is also written down.

        Figures: seconds, extender cpu seconds, scheduler cpu seconds, filter calls, answers from memory, extender cpu
        share (of one core), and extender cpu ms per filter call.
        """
        began, before = self._measuring
        now, seconds = await self._meters(), time.monotonic() - began
        found = {name: round(now[name] - before[name], 3) for name in now} | {"seconds": round(seconds, 2)}
        used = found["extender cpu seconds"]
        found["extender cpu share"] = round(used / seconds, 3)
        found["extender cpu ms per filter call"] = round(used * 1000 / max(1, found["filter calls"]), 3)
        self._figures["measured"] = found
        for name, wanted in given.items():
            least = isinstance(wanted, str)
            limit = float(str(wanted).removeprefix("at least "))
            assert found[name] >= limit if least else found[name] <= limit, f"{name}: {found[name]}, not {wanted}"

    async def unasked(self, seconds: float) -> None:
        """SECONDS: for this long kube-scheduler asks filter about no pod."""
        last = -1.0
        end = time.monotonic() + self._seconds
        while (calls := (await self._meters())["filter calls"]) != last:
            assert time.monotonic() < end, "kube-scheduler asks on and on"
            last = calls
            await asyncio.sleep(seconds)

    async def are_refused(self, number: int) -> None:
        """N: at least so many pods are unschedulable now."""

        def enough() -> bool:
            pods = self._world.audit.pods.values()
            return sum(condition(pod).get("reason") == "Unschedulable" for pod in pods) >= number

        await self._until(enough, f"{number} pods are refused")

    async def problems(self, given: Sequence[str]) -> None:
        """[CODE, ...]: the codes of all problems that verify reports, sorted."""

        async def codes() -> list[str]:
            said = await self._world.extender.get("/api/v1/verify")
            return sorted({problem["code"] for problem in said["problems"]})

        await self._poll(codes, lambda found: "" if found == sorted(given) else f"problems: {found}, not {given}")

    async def bound_by_extender(self, given: Given) -> None:
        """POD or list: it carries its cards, as only the extender's Binding writes them."""
        for name in as_list(given):
            assert self._pod(name)["metadata"]["annotations"].get("hami.io/vgpu-devices-allocated"), name

    async def untouched(self, given: Given) -> None:
        """POD or list: the extender wrote nothing on it."""
        for name in as_list(given):
            keys = self._pod(name)["metadata"].get("annotations") or {}
            assert not [key for key in keys if "hami.io" in key or "gpu-extender" in key], f"pod {name}: {keys}"

    async def _extender_held(self) -> dict[str, tuple[int, int, int]]:
        nodes = await self._world.extender.get("/api/v1/nodes")
        return {
            f"{one['node']}/{one['uuid']}": tuple(one["requested"][key] for key in ("slots", "memory", "cores"))
            for node in nodes
            for one in node["devices"]
        }
