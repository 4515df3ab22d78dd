"""The flags that every command has: HAMi's defaults, the vendors that are on, and their device configuration.

Why it exists: what a pod asks for depends on them, so each command that reads pods must read them alike. It must not
know any command. Invariant: a flag goes before the file of `--vendor-config`, and that before the table of vendors.
"""

import argparse
import re
from dataclasses import replace

from accounting.policy import NodePolicy, make_policies, unknown_card_words
from accounting.register import ReservedMemory
from accounting.selection import type_tokens
from accounting.vendor import NVIDIA, Vendor
from accounting.vendors import UNSUPPORTED, VENDORS
from extender.admission.settings import AdmissionSettings
from extender.commands.vendor_config import VendorConfig
from extender.config import Settings
from extender.convert import InputError
from extender.wire.names import why_no_subdomain

_INT32_MAX = 2**31 - 1
#: What stands behind the slash of a qualified name.
_RESOURCE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)


def add_defaults(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    group = parser.add_argument_group("defaults, as in HAMi's scheduler and device configuration")
    group.add_argument(
        "--node-scheduler-policy",
        default="binpack",
        choices=[policy.value for policy in NodePolicy],
        help="which nodes go first; default: binpack",
    )
    group.add_argument(
        "--gpu-scheduler-policy",
        type=_card_policy,
        metavar="POLICY",
        help="comma list of binpack, spread, numa, mutex, topology-aware; default: spread; binpack with the node "
        "policies fgd and fragmentation",
    )
    group.add_argument(
        "--expected-workload",
        type=path,
        metavar="FILE",
        help="Pod manifests that show what fgd and fragmentation are to expect; default: learned from the pods seen",
    )
    group.add_argument("--memory-factor", type=natural, metavar="N", help="MiB per unit of gpumem, default 1")
    group.add_argument("--default-memory", type=natural, metavar="MIB", help="default 0: the whole card")
    group.add_argument("--default-cores", type=natural, metavar="PERCENT", help="default 0")
    group = parser.add_argument_group("cards")
    group.add_argument(
        "--vendors",
        type=_vendors,
        metavar="NAMES",
        help=f"comma list of the vendors that are on, default nvidia or those of --vendor-config: {', '.join(VENDORS)}",
    )
    group.add_argument(
        "--vendor-config",
        type=path,
        metavar="FILE",
        help="HAMi's device-config.yaml, or its ConfigMap: resource names and defaults; flags go before it",
    )
    group.add_argument(
        "--raw-key",
        action="append",
        type=_raw_key,
        default=[],
        metavar="NAME",
        help="extended resource of whole devices, e.g. nvidia.com/GH100_H200_SXM_141GB, that is counted; repeatable",
    )
    group.add_argument(
        "--raw-budgets",
        type=path,
        metavar="FILE",
        help="units of raw keys that namespaces may have, YAML or a ConfigMap; read again when it changes",
    )
    group.add_argument(
        "--reserved-memory",
        type=_reserved_memory,
        default=ReservedMemory(),
        metavar="MODEL=MIB",
        help="memory of a card model that nobody gets, for driver and contexts; comma list, e.g. T4=450,A100=600",
    )
    group.add_argument(
        "--ignore-unmapped-devices",
        action="store_true",
        help="a DRA claim's device that is no known card blocks nothing; by default its node takes no pods",
    )


def with_config(arguments: argparse.Namespace, config: VendorConfig) -> argparse.Namespace:
    """Fill in what admission takes from a device configuration; a flag goes before it."""
    if "default_gpu_count" in arguments:
        if arguments.default_gpu_count is None:
            default = AdmissionSettings().default_count
            arguments.default_gpu_count = default if config.default_count is None else config.default_count
        arguments.runtime_class_name = arguments.runtime_class_name or config.runtime_class
    return arguments


def settings_of(arguments: argparse.Namespace, config: VendorConfig) -> Settings:
    """Return the settings that flags and a device configuration give."""
    vendors = {vendor.key: vendor for vendor in config.vendors.values()}
    chosen = arguments.vendors or tuple(vendors.values()) or (NVIDIA,)
    flags = {
        "memory_factor": arguments.memory_factor,
        "default_memory_mib": arguments.default_memory,
        "default_cores": arguments.default_cores,
    }
    nvidia = replace(
        vendors.get(NVIDIA.key, NVIDIA), **{key: value for key, value in flags.items() if value is not None}
    )
    policies = make_policies(arguments.node_scheduler_policy, arguments.gpu_scheduler_policy)
    vendors[NVIDIA.key] = nvidia
    first, *others = (vendors.get(each.key, each) for each in chosen)
    settings = Settings(
        first,
        policies,
        tuple(others),
        arguments.reserved_memory,
        raw_keys=tuple(sorted(set(arguments.raw_key))),
        ignore_unmapped=arguments.ignore_unmapped_devices,
    )
    for key in settings.raw_keys:
        if any(key in vendor.resources for vendor in settings.vendors):
            raise InputError("--raw-key", key, "is a resource of shares of cards already")
    if arguments.raw_budgets is not None and not settings.raw_keys:
        raise InputError("--raw-budgets", arguments.raw_budgets, "needs --raw-key")
    return settings


def _vendors(text: str) -> tuple[Vendor, ...]:
    """Read a comma list of names of the table of vendors."""
    found: dict[str, Vendor] = {}
    for name in (part.strip() for part in text.split(",")):
        if name in UNSUPPORTED:
            raise argparse.ArgumentTypeError(f"{name}: is not supported: {UNSUPPORTED[name]}")
        if name not in VENDORS:
            raise argparse.ArgumentTypeError(f"{name or '(empty)'}: is none of {', '.join(VENDORS)}")
        if name in found:
            raise argparse.ArgumentTypeError(f"{name}: is named twice")
        found[name] = VENDORS[name]
    return tuple(found.values())


def _raw_key(text: str) -> str:
    """Read the name of an extended resource."""
    domain, slash, name = text.partition("/")
    if not slash or not domain or not name or why_no_subdomain(domain) or not _RESOURCE.fullmatch(name):
        raise argparse.ArgumentTypeError(f"{text or '(empty)'}: must be an extended resource, such as nvidia.com/A100")
    return text


def _card_policy(text: str) -> str:
    """Check a card policy. On a pod an unknown word is ignored, as in HAMi; here it is a mistake of one person."""
    unknown = unknown_card_words(text)
    if unknown:
        raise argparse.ArgumentTypeError(f"{text}: {unknown[0] or '(empty)'} is no policy")
    return text


def _reserved_memory(text: str) -> ReservedMemory:
    """Read MODEL=MIB, comma separated."""
    entries = []
    for part in text.split(","):
        model, equals, number = (each.strip() for each in part.rpartition("="))
        if not equals or not type_tokens(model):
            raise argparse.ArgumentTypeError(f"{part.strip() or '(empty)'}: must be MODEL=MIB")
        try:
            entries.append((type_tokens(model), natural(number)))
        except argparse.ArgumentTypeError:
            raise argparse.ArgumentTypeError(f"{number or '(empty)'}: must be a whole number of MiB") from None
    return ReservedMemory(tuple(entries))


def natural(text: str) -> int:
    """Read a whole number."""
    digits = text.lstrip("0") or "0"
    if not text.isascii() or not text.isdigit() or len(digits) > len(str(_INT32_MAX)) or int(digits) > _INT32_MAX:
        message = f"{text or '(empty)'}: must be a whole number up to {_INT32_MAX}"
        raise argparse.ArgumentTypeError(message)
    return int(digits)


def path(text: str) -> str:
    """Read the name of a file."""
    if not text:
        message = "(empty): must be a file"
        raise argparse.ArgumentTypeError(message)
    return text
