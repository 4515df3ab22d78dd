"""Holders of cards other than annotated pods: VMs, hold sets, raw resource names and DRA claims.

It must not know the wire, clocks or arrays. Its results are added to the same cells as what pods hold.
"""

from accounting.holders.claim_ledger import CardClaims, Changes, ClaimLedger, Unmapped
from accounting.holders.claims import (
    Claim,
    ClaimedCard,
    ClaimHolding,
    Result,
    charged_devices,
    held_by_claim,
)
from accounting.holders.dra_devices import GPU_DRIVERS, Card, DeviceId, DeviceKind, DeviceTable, Slice, SliceDevice
from accounting.holders.hold import Hold, HoldState, holds_of, still_held, wanted_by
from accounting.holders.hold_places import KeptSet, LedgerPlaces
from accounting.holders.hold_sets import HoldSet, Places, Room, bind_set, full_pass, is_whole
from accounting.holders.raw_devices import RawDevices
from accounting.holders.raw_overcommit import overcommitted, overcommitted_places
from accounting.holders.raw_units import RawPod, RawUnits, Units
from accounting.holders.raw_values import (
    ANY_NAMESPACE,
    Budgets,
    OverBudget,
    Overcommitted,
    RawRequest,
    Shortage,
)
from accounting.holders.usage_records import Owner, Phase, Record, Subject, UsageRecords, split_by_phase
from accounting.holders.virtual_machine import Launchers, Migration, VirtualMachineInstance, VmiKey, count_units

__all__ = [
    "ANY_NAMESPACE",
    "GPU_DRIVERS",
    "Budgets",
    "Card",
    "CardClaims",
    "Changes",
    "Claim",
    "ClaimHolding",
    "ClaimLedger",
    "ClaimedCard",
    "DeviceId",
    "DeviceKind",
    "DeviceTable",
    "Hold",
    "HoldSet",
    "HoldState",
    "KeptSet",
    "Launchers",
    "LedgerPlaces",
    "Migration",
    "OverBudget",
    "Overcommitted",
    "Owner",
    "Phase",
    "Places",
    "RawDevices",
    "RawPod",
    "RawRequest",
    "RawUnits",
    "Record",
    "Result",
    "Room",
    "Shortage",
    "Slice",
    "SliceDevice",
    "Subject",
    "Units",
    "Unmapped",
    "UsageRecords",
    "VirtualMachineInstance",
    "VmiKey",
    "bind_set",
    "charged_devices",
    "count_units",
    "full_pass",
    "held_by_claim",
    "holds_of",
    "is_whole",
    "overcommitted",
    "overcommitted_places",
    "split_by_phase",
    "still_held",
    "wanted_by",
]
