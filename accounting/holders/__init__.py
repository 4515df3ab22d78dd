"""Everything but annotations that holds cards: VMs, hold sets, raw resource names and DRA claims.

It must not know the wire, clocks or arrays. What it works out is summed into the same cells as what pods hold.
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
from accounting.holders.dra_devices import Card, DeviceId, DeviceKind, DeviceTable, Slice, SliceDevice
from accounting.holders.hold import Hold, HoldState, holds_of
from accounting.holders.hold_sets import Room, passes
from accounting.holders.raw_devices import ANY_NAMESPACE, Budgets, OverBudget, RawDevices, RawRequest, Shortage
from accounting.holders.raw_units import RawPod, RawUnits, Units
from accounting.holders.usage_records import Owner, Phase, Record, Subject, UsageRecords, split_by_phase
from accounting.holders.virtual_machine import Launchers, Migration, VirtualMachineInstance, VmiKey, count_units

__all__ = [
    "ANY_NAMESPACE",
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
    "HoldState",
    "Launchers",
    "Migration",
    "OverBudget",
    "Owner",
    "Phase",
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
    "charged_devices",
    "count_units",
    "held_by_claim",
    "holds_of",
    "passes",
    "split_by_phase",
]
