"""The types of answers on claims, and what is held for VMs.

It must not know how an answer is made. Invariant: as in the package.
"""

from typing import TypedDict


class ClaimedCard(TypedDict):
    """What a claim holds on one card; `closed`: no pod with annotations may join."""

    node: str
    uuid: str
    slots: int
    memory: int
    cores: int
    closed: bool


class UnmappedDevice(TypedDict):
    """A device that is no known card, and the node that it is on."""

    node: str
    driver: str
    pool: str
    device: str


class ClaimEntry(TypedDict):
    """A claim of dynamic resource allocation that has been given devices of a GPU driver."""

    claim: str
    uid: str
    cards: list[ClaimedCard]
    unmapped: list[UnmappedDevice]


class HeldDevices(TypedDict):
    """Devices that are held for a VM. `name`: of the object that tells of them, if it is not the VM's spec."""

    name: str | None
    raw_key: str
    units: int
    node: str | None
    state: str


class HoldEntry(TypedDict):
    """All that is held for one VM. `kind`: hold if objects of their own tell of it, vmi if the VM's spec does."""

    vmi: str
    kind: str
    state: str | None
    nodes: list[str]
    holds: list[HeldDevices]
