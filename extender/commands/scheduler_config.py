"""Print kube-scheduler's configuration, with the resource names of the enabled vendors in the extender's stanza.

Why it exists: kube-scheduler sends a pod to the extender only if the stanza names one of its resources, so the names
must not be copied by hand. It must not reach a cluster. Invariant: apart from the names the output is the manifest in
manifests/scheduler, comments included; by default the names are too.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import orjson
import yaml

from accounting.vendor import Vendor
from extender.admission.settings import AdmissionSettings
from extender.commands.arguments import object_name
from extender.config import Settings

_MANIFEST = "kube-scheduler-config.yaml"
_HEAD = "  managedResources:\n"
_ADVERTISED = """\
  # Nodes advertise the count (the sum of their cards' slots), so kube-scheduler counts it too. That keeps node totals
  # free of races, and it lets preemption find victims: with true, preemption for a shortage of GPUs finds none.
"""
_NOT_ADVERTISED = '  # Nodes do not advertise the others. With false every node would be "Insufficient" for them.\n'
_WHOLE = """\
  # Whole devices. Nodes advertise them and kube-scheduler counts them, but neither what VMs hold nor budgets.
"""
_PRIORITY = """\
  # The priority of the work on the card. The extender ignores it, but without this entry kube-scheduler would look for
  # it on the nodes.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = __doc__
    parser.add_argument(
        "--scheduler-name",
        type=object_name,
        default=AdmissionSettings().scheduler_name,
        metavar="NAME",
        help="of the profile",
    )
    parser.add_argument("-o", "--output", choices=["yaml", "json"], default="yaml", help="format; default: yaml")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the configuration."""
    text = scheduler_config(settings.vendors, arguments.scheduler_name, settings.raw_keys)
    if arguments.output == "json":
        text = orjson.dumps(yaml.safe_load(text), option=orjson.OPT_INDENT_2).decode() + "\n"
    sys.stdout.write(text)
    return 0


def scheduler_config(vendors: tuple[Vendor, ...], scheduler_name: str, raw_keys: tuple[str, ...] = ()) -> str:
    """Return the manifest with the names of these vendors' resources and of whole devices."""
    head, marker, tail = _manifest().partition(_HEAD)
    if re.search(r"^\S", tail, re.MULTILINE):
        raise AssertionError(f"{_MANIFEST}: something stands behind managedResources")
    head = re.sub(r"(?m)^- schedulerName: \S+$", f"- schedulerName: {scheduler_name}", head)
    return head + marker + "".join(_managed(vendors)) + "".join(_raw(raw_keys))


def _managed(vendors: tuple[Vendor, ...]) -> Iterator[str]:
    """Yield the entries; the first vendor's have comments."""
    for number, vendor in enumerate(vendors):
        count, *others = vendor.resources
        yield (_ADVERTISED if number == 0 else "") + _entry(count, ignored=False)
        if others:
            yield _NOT_ADVERTISED if number == 0 else ""
            yield from (_entry(name, ignored=True) for name in others)
        if vendor.priority_resource:
            yield (_PRIORITY if number == 0 else "") + _entry(vendor.priority_resource, ignored=True)


def _raw(keys: tuple[str, ...]) -> Iterator[str]:
    """Yield the entries of whole devices."""
    if keys:
        yield _WHOLE
    yield from (_entry(key, ignored=False) for key in keys)


def _entry(name: str, *, ignored: bool) -> str:
    return f"  - name: {name}\n    ignoredByScheduler: {str(ignored).lower()}\n"


def _manifest() -> str:
    """Return the bundled manifest: packaged in a wheel, else in the checkout."""
    packaged = resources.files("extender").joinpath(_MANIFEST)
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    return (Path(__file__).parents[2] / "manifests" / "scheduler" / _MANIFEST).read_text(encoding="utf-8")
