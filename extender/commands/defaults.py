"""The flags that every command has: HAMi's defaults, the enabled vendors, and their device configuration.

Why it exists: what a pod asks for depends on them, so each command that reads pods must read them alike. It must not
know any command. Invariants: a flag goes before the file of `--vendor-config`, and that before the table of vendors;
every command takes all of them, so that one set of flags serves all commands, and shows those that matter to it.
"""

import argparse
import re
from collections.abc import Iterator
from dataclasses import replace

from accounting.policy import NodePolicy, make_policies, unknown_card_words
from accounting.register import ReservedMemory
from accounting.selection import type_tokens
from accounting.vendor import NVIDIA, Vendor
from accounting.vendors import UNSUPPORTED, VENDORS
from extender.admission.settings import AdmissionSettings
from extender.commands.arguments import natural, path
from extender.commands.holds import hold_field, hold_resource, hold_source_of
from extender.commands.vendor_config import VendorConfig
from extender.config import Settings
from extender.convert import InputError
from extender.wire.names import why_no_subdomain

#: What stands behind the slash of a qualified name.
_RESOURCE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)


#: The flags by what they are about, for `add_defaults`.
POLICIES = frozenset({"node_scheduler_policy", "gpu_scheduler_policy"})
EXPECTED_WORKLOAD = frozenset({"expected_workload"})
REQUESTS = frozenset({"memory_factor", "default_memory", "default_cores"})
RESOURCE_NAMES = frozenset({"vendors", "vendor_config"})
NODES = frozenset({"reserved_memory"})
ALL = POLICIES | EXPECTED_WORKLOAD | REQUESTS | RESOURCE_NAMES | NODES


def add_defaults(parser: argparse.ArgumentParser, shown: frozenset[str] = ALL) -> None:
    """Add the flags. `shown`: those that --help shows."""
    for action in (*_add_policies_and_requests(parser), *_add_cards(parser)):
        if action.dest not in shown:
            action.help = argparse.SUPPRESS


def _add_policies_and_requests(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    group = parser.add_argument_group("defaults, as in HAMi's scheduler and device configuration")
    yield group.add_argument(
        "--node-scheduler-policy",
        default="binpack",
        choices=[policy.value for policy in NodePolicy],
        help="which nodes go first; default: binpack",
    )
    yield group.add_argument(
        "--gpu-scheduler-policy",
        type=_card_policy,
        metavar="POLICY",
        help="comma list of binpack, spread, numa, mutex, topology-aware; default: spread; binpack with the node "
        "policies fgd and fragmentation",
    )
    yield group.add_argument(
        "--expected-workload",
        type=path,
        metavar="FILE",
        help="Pod manifests that show what fgd and fragmentation are to expect; default: learned from the pods seen",
    )
    yield group.add_argument("--memory-factor", type=natural, metavar="N", help="MiB per unit of gpumem; default: 1")
    yield group.add_argument(
        "--default-memory", type=natural, metavar="MIB", help="where none is asked for; default: 0, the whole card"
    )
    yield group.add_argument(
        "--default-cores", type=natural, metavar="PERCENT", help="where none are asked for; default: 0"
    )


def _add_cards(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    group = parser.add_argument_group("cards")
    yield group.add_argument(
        "--vendors",
        type=_vendors,
        metavar="NAMES",
        help=f"comma list of the vendors that are on, of {', '.join(VENDORS)}; "
        "default: nvidia, or those of --vendor-config",
    )
    yield group.add_argument(
        "--vendor-config",
        type=path,
        metavar="FILE",
        help="HAMi's device-config.yaml, or its ConfigMap: resource names and defaults; flags go before it",
    )
    yield group.add_argument(
        "--raw-key",
        action="append",
        type=_raw_key,
        default=[],
        metavar="NAME",
        help="extended resource of whole devices, e.g. nvidia.com/GH100_H200_SXM_141GB, that is counted; repeatable",
    )
    yield group.add_argument(
        "--raw-budgets",
        type=path,
        metavar="FILE",
        help="units of raw keys that namespaces may have, YAML or a ConfigMap; read again when it changes",
    )
    group.add_argument(
        "--hold-sets",
        action="store_true",
        help="keep the devices of each VM together on one node, also before its pod runs; needs --raw-key",
    )
    group.add_argument(
        "--hold-resource",
        type=hold_resource,
        metavar="PLURAL.VERSION.GROUP",
        help="custom resource whose objects say what is held for VMs, e.g. holds.v1alpha1.gpu-extender.io; "
        "default: the VMs' specs do",
    )
    group.add_argument(
        "--hold-field",
        action="append",
        type=hold_field,
        default=[],
        metavar="FIELD=PATH",
        help="where an object of --hold-resource has vmi, key, units, node or state, e.g. vmi=spec.vmName; repeatable",
    )
    yield group.add_argument(
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
    """Fill in what admission takes from a device configuration; a flag overrides it."""
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
        hold_sets=arguments.hold_sets,
        hold_source=hold_source_of(arguments),
    )
    for key in settings.raw_keys:
        if any(key in vendor.resources for vendor in settings.vendors):
            raise InputError("--raw-key", key, "is a resource of shares of cards already")
    if arguments.raw_budgets is not None and not settings.raw_keys:
        raise InputError("--raw-budgets", arguments.raw_budgets, "needs --raw-key")
    if settings.hold_sets and not settings.raw_keys:
        raise InputError("--hold-sets", "true", "needs --raw-key")
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
    """Check a card policy. Unlike on a pod, where it is ignored as in HAMi, an unknown word is an error here."""
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
