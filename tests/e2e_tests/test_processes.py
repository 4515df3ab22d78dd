"""Ports for programs that tests start: no program listens on them, and the system gives them to no connection."""

import socket
from pathlib import Path

import pytest

from tests.e2e import processes
from tests.e2e.processes import free_ports

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_port_that_somebody_listens_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    (taken, first, second) = free_ports(3)
    monkeypatch.setattr(processes, "_PORTS", (taken, first, second))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", taken))
        listening.listen()
        assert set(free_ports(2)) == {first, second}


@pytest.mark.skipif(not _RANGE.exists(), reason="only Linux says which ports it gives to connections")
def test_the_system_gives_them_to_no_connection() -> None:
    lowest = int(_RANGE.read_text().split()[0])
    assert max(processes._PORTS) < lowest
