"""`--vendor-config FILE`: HAMi's own device configuration, for clusters that rename resources or change defaults.

Why it exists: an operator who has renamed `nvidia.com/gpu` has already written that for HAMi, and need not write it
again. It must not know other flags. Invariants: what the file does not set stays as in the table of vendors; an unknown
key gives a warning and changes nothing; an unusable value is bad input.

The file is the text under `device-config.yaml` of HAMi's ConfigMap, or that ConfigMap itself. Keys that act on the node
(split count, scaling, core limits, MIG geometries, overrides per node) are accepted without effect: the register that
the device plugin writes has their result.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from accounting.vendor import NVIDIA, Template, Vendor
from accounting.vendors import HYGON, HYGON_HCU, UNSUPPORTED, VENDORS, XPU
from extender.convert import InputError
from extender.wire.unreadable import why_unreadable

_OPTION = "--vendor-config"
_DOCUMENT = "device-config.yaml"
_INT32_MAX = 2**31 - 1
_Yaml = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)

#: Key of the file -> field of `Vendor`, for resource names and for numbers.
_NAMES = {
    "resourceCountName": "count_resource",
    "resourceMemoryName": "memory_resource",
    "resourceMemoryPercentageName": "memory_percentage_resource",
    "resourceCoreName": "cores_resource",
    "resourcePriorityName": "priority_resource",
}
_NUMBERS = {
    "memoryFactor": "memory_factor",
    "gpuMemoryFactor": "memory_factor",
    "defaultMemory": "default_memory_mib",
    "defaultMem": "default_memory_mib",
    "defaultCores": "default_cores",
}
#: Keys whose effect is in the register, or that concern only the device plugin.
_ON_THE_NODE = frozenset(
    {
        *("deviceSplitCount", "deviceMemoryScaling", "deviceCoreScaling", "deviceCoresScaling"),
        *("preConfiguredDeviceMemory", "disableCoreLimit", "disablecorelimit", "enableNumaTopology"),
        *("migProfileAllowlist", "knownMigGeometries", "migStrategy", "migstrategy", "overwriteEnv"),
        *("gpuCorePolicy", "libCudaLogLevel", "nodeconfig", "chipName", "commonWord", "aiCore", "aiCPU"),
    }
)
_BY_KEY = {vendor.key: name for name, vendor in VENDORS.items()}
#: Top-level blocks of vendors that are not supported, by their name in `accounting.vendors`.
_OTHERS = {name: UNSUPPORTED[name] for name in ("amd", "awsneuron", "cambricon", "enflame", "metax", "mthreads")}


@dataclass(slots=True)
class VendorConfig:
    """The content of a file."""

    vendors: dict[str, Vendor] = field(default_factory=dict)
    """Name in the table of vendors -> the vendor as the file has it; enabled ones only, NVIDIA first."""
    default_count: int | None = None
    """The count for a container that asks only for memory or cores."""
    runtime_class: str = ""
    ignored: list[str] = field(default_factory=list)
    """Keys without effect, each with the reason."""


def read_vendor_config(path: str) -> VendorConfig:
    """Read a file. Raises `InputError`."""
    return _Reader(path).read()


class _Reader:
    """Reads one file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found = VendorConfig()

    def read(self) -> VendorConfig:
        """Return the content of the file."""
        read: dict[str, Callable[[str, Any], None]] = {
            "nvidia": lambda at, block: self._plain(at, block, NVIDIA),
            "hygon": self._hygon,
            "kunlun": self._kunlun,
            "vastai": lambda at, block: self._plain(at, block, VENDORS["vastai"]),
            "biren": lambda at, block: self._plain(at, block, VENDORS["biren"]),
            "iluvatars": self._iluvatars,
            "vnpus": self._ascends,
        }
        blocks = self._blocks()
        for at in [*(name for name in read if name in blocks), *(name for name in blocks if name not in read)]:
            if at in read:
                read[at](at, blocks[at])
            elif at in _OTHERS:
                self._found.ignored.append(f"{at}: is not supported: {_OTHERS[at]}")
            elif at not in _ON_THE_NODE:
                self._ignore(at)
        if not self._found.vendors:
            raise InputError(_OPTION, self._path, "turns on no vendor that is supported")
        self._check_names()
        return self._found

    def _blocks(self) -> Mapping[str, Any]:
        try:
            text = Path(self._path).read_text(encoding="utf-8")
            read = yaml.load(text, _Yaml)  # noqa: S506 - a safe loader
            if isinstance(read, dict) and read.get("kind") == "ConfigMap":
                data = read.get("data")
                text = data.get(_DOCUMENT, "") if isinstance(data, dict) else ""
                read = yaml.load(text, _Yaml) if isinstance(text, str) else None  # noqa: S506 - the same
        except OSError as error:
            raise InputError(_OPTION, self._path, error.strerror or str(error)) from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise InputError(_OPTION, self._path, why_unreadable(error, "is not YAML: ")) from None
        if not isinstance(read, dict):
            raise InputError(_OPTION, self._path, f"holds no device configuration, nor a ConfigMap with {_DOCUMENT}")
        return {str(key): value for key, value in read.items()}

    # -- blocks ---------------------------------------------------------------------------------------------------

    def _plain(self, at: str, block: object, vendor: Vendor) -> None:
        """Read a block with resource names and numbers. Without a name for the count the vendor is off."""
        given = self._mapping(at, block)
        if not given.get("resourceCountName"):
            return
        changed: dict[str, Any] = {}
        for key, value in given.items():
            if key in _NAMES:
                changed[_NAMES[key]] = self._name(f"{at}.{key}", value)
            elif key in _NUMBERS:
                changed[_NUMBERS[key]] = self._number(f"{at}.{key}", value)
            elif key == "defaultGPUNum":
                self._found.default_count = self._number(f"{at}.{key}", value)
            elif key == "runtimeClassName":
                self._found.runtime_class = str(value or "")
            elif key not in _ON_THE_NODE:
                self._ignore(f"{at}.{key}")
        self._turn_on(vendor, changed)

    def _hygon(self, at: str, block: object) -> None:
        """Read Hygon's block. HAMi has renamed its DCU to HCU, also in what nodes register (HAMi#2969)."""
        count = str(self._mapping(at, block).get("resourceCountName") or "")
        self._plain(at, block, HYGON_HCU if count.rpartition("/")[2].startswith("hcu") else HYGON)

    def _kunlun(self, at: str, block: object) -> None:
        """Read Kunlun's block, of which only slices are supported."""
        given = dict(self._mapping(at, block))
        if given.pop("resourceCountName", None):
            self._found.ignored.append(f"{at}.resourceCountName: is not supported: {UNSUPPORTED['kunlun']}")
        names = {"resourceVCountName": "resourceCountName", "resourceVMemoryName": "resourceMemoryName"}
        self._plain(at, {names.get(key, key): value for key, value in given.items()}, XPU)

    def _iluvatars(self, at: str, block: object) -> None:
        for where, chip, vendor in self._chips(at, block):
            self._plain(where, chip, vendor)

    def _ascends(self, at: str, block: object) -> None:
        """Read Ascend's block: a list, or since v2.10 a mapping with the list under `configs`."""
        if isinstance(block, dict):
            for key in block:
                if key not in ("configs", "hamiVnpuCore"):
                    self._ignore(f"{at}.{key}")
            at, block = f"{at}.configs", block.get("configs")
        for where, chip, vendor in self._chips(at, block):
            self._ascend(where, dict(chip), vendor)

    def _ascend(self, at: str, given: dict[str, Any], vendor: Vendor) -> None:
        named = {"resourceCountName": given.pop("resourceName", None)}
        changed: dict[str, Any] = {}
        if "resourceCoreName" in given:
            changed["unmanaged_resource"] = self._name(f"{at}.resourceCoreName", given.pop("resourceCoreName"))
        if "memoryCapacity" in given:
            changed["largest_memory_mib"] = self._number(f"{at}.memoryCapacity", given.pop("memoryCapacity"))
        allocatable = vendor.templates[-1].memory
        if "memoryAllocatable" in given:
            allocatable = self._number(f"{at}.memoryAllocatable", given.pop("memoryAllocatable"))
        sizes = vendor.templates[:-1]
        if "templates" in given:
            sizes = tuple(self._templates(f"{at}.templates", given.pop("templates")))
        changed["templates"] = (*sizes, Template("", allocatable))
        given.pop("superPod", None)
        self._plain(at, named | given, replace(vendor, **changed))

    def _templates(self, at: str, block: object) -> Iterator[Template]:
        for number, entry in enumerate(self._list(at, block)):
            given = self._mapping(f"{at}[{number}]", entry)
            yield Template(str(given.get("name", "")), self._number(f"{at}[{number}].memory", given.get("memory")))

    def _chips(self, at: str, block: object) -> Iterator[tuple[str, Mapping[str, Any], Vendor]]:
        """Yield the entries of a list of chips whose cards are supported, each with the table's vendor."""
        for number, entry in enumerate(self._list(at, block)):
            where, chip = f"{at}[{number}]", self._mapping(f"{at}[{number}]", entry)
            word = str(chip.get("commonWord", ""))
            name = _BY_KEY.get(word)
            if name is None:
                why = UNSUPPORTED.get(word.lower().replace("ascend", "ascend-"), "this chip is not known")
                self._found.ignored.append(f"{where}: {word or '(no commonWord)'}: is not supported: {why}")
                continue
            yield where, chip, VENDORS[name]

    # -- values ---------------------------------------------------------------------------------------------------

    def _turn_on(self, vendor: Vendor, changed: Mapping[str, Any]) -> None:
        self._found.vendors[_BY_KEY[vendor.key]] = replace(vendor, **changed)

    def _ignore(self, at: str) -> None:
        self._found.ignored.append(f"{at}: is not known and is ignored")

    def _mapping(self, at: str, value: object) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._bad(at, value, "must be a mapping")
        return {str(key): each for key, each in value.items()}

    def _list(self, at: str, value: object) -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._bad(at, value, "must be a list")
        return value

    def _name(self, at: str, value: object) -> str:
        if value in (None, ""):
            return ""
        if not isinstance(value, str) or not _RESOURCE.fullmatch(value):
            raise self._bad(at, value, "must be the name of an extended resource, such as nvidia.com/vgpu")
        return value

    def _number(self, at: str, value: object) -> int:
        if type(value) is not int or not 0 <= value <= _INT32_MAX:
            raise self._bad(at, value, "must be a whole number from 0")
        return value

    def _check_names(self) -> None:
        """Refuse one name for two resources, which would make requests ambiguous."""
        seen: dict[str, str] = {}
        for name, vendor in self._found.vendors.items():
            for resource in (*vendor.resources, *filter(None, [vendor.priority_resource])):
                if resource in seen:
                    why = f"names two resources, of {seen[resource]} and of {name}"
                    raise InputError(_OPTION, f"{self._path}: {resource}", why)
                seen[resource] = name

    def _bad(self, at: str, value: object, why: str) -> InputError:
        shown = repr(value)
        return InputError(f"{_OPTION}: {self._path}: {at}", shown if len(shown) <= 120 else shown[:117] + "...", why)  # noqa: PLR2004 - one line of a terminal
