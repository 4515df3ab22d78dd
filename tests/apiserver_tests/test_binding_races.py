"""Bindings at once: one for the same pod succeeds, and all for different pods do."""

import asyncio
from collections import Counter

from tests.apiserver.server import ApiServer
from tests.apiserver_tests.helpers import PODS, Client


async def test_of_64_bindings_of_one_pod_one_succeeds(server: ApiServer, client: Client) -> None:
    version = (await client.create())["metadata"]["resourceVersion"]
    answers = await asyncio.gather(*(client.bind("a", f"n{i}", annotations={"by": f"n{i}"}) for i in range(64)))
    assert Counter(status for status, _ in answers) == {201: 1, 409: 63}
    pod = await client.ok("GET", f"{PODS}/a")
    assert pod["metadata"]["annotations"]["by"] == pod["spec"]["nodeName"]
    assert answers[int(pod["spec"]["nodeName"][1:])][0] == 201
    assert int(pod["metadata"]["resourceVersion"]) == int(version) + 1
    assert server.requests.count(verb="create", resource="pods/binding") == 64


async def test_64_bindings_of_64_pods_succeed(client: Client) -> None:
    await asyncio.gather(*(client.create(f"p{i}") for i in range(64)))
    answers = await asyncio.gather(*(client.bind(f"p{i}") for i in range(64)))
    assert {status for status, _ in answers} == {201}


async def test_a_deletion_and_a_binding_do_not_both_succeed(client: Client) -> None:
    for number in range(20):
        name = f"p{number}"
        await client.create(name)
        bound, (deleted, last) = await asyncio.gather(client.bind(name), client.send("DELETE", f"{PODS}/{name}"))
        assert deleted == 200
        assert ("nodeName" in last["spec"]) == (bound[0] == 201)
