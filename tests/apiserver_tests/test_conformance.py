"""The server meets the specification that it shares with a real one.

It must not add to the specification: what only this server can do is tested elsewhere.
"""

import yaml

from tests.apiserver.conformance import CASES, run_conformance
from tests.apiserver.server import ApiServer


async def test_every_case_holds(server: ApiServer) -> None:
    assert await run_conformance(server.url) == []


async def test_the_cases_clean_up(server: ApiServer) -> None:
    await run_conformance(server.url, only="a lock on a node")
    assert all(len(table) == 0 for table in server.store.tables.values())


async def test_a_server_that_differs_is_found_out(server: ApiServer) -> None:
    server.faults.add(fault="status", code=503, resource="pods/binding", verb="create")
    failures = await run_conformance(server.url, only="a binding is one event")
    assert [failure.step for failure in failures] == ["POST ${pods}/a/binding"]


def test_names_of_cases_are_unique() -> None:
    names = [case["name"] for case in yaml.safe_load(CASES.read_text())["cases"]]
    assert len(names) >= 60
    assert len(set(names)) == len(names)
