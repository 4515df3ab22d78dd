"""`account -f POD`: what a pod holds, per container, per card, per phase.

It uses the allocation annotation, whether or not the pod is bound.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from accounting.pod import Pod, UnreadableAllocation
from accounting.pod_record import record_pod
from extender.cluster import check_requests
from extender.commands.arguments import add_pods
from extender.commands.common import print_json, print_lines, read_pods, table
from extender.config import Settings
from extender.convert import InputError
from extender.reports import account, asks, request_text


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_pods(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run the command. Raises `InputError`."""
    pods = read_pods(arguments.filename, settings)
    entries = [account_entry(pod) for pod in pods]
    if arguments.output == "json":
        print_json(entries[0] if len(entries) == 1 else entries)
    else:
        print_lines(line for pod, entry in zip(pods, entries, strict=True) for line in _text(pod, entry))
    return 0


def account_entry(pod: Pod) -> dict[str, Any]:
    """Return a pod's account. Raises `InputError` for an annotation or a request that cannot be used."""
    if isinstance(pod.allocation, UnreadableAllocation):
        why = pod.allocation.why
        raise InputError(why.field, why.value, why.why)
    check_requests(pod)
    return account(pod, record_pod(pod))


def _text(pod: Pod, entry: dict[str, Any]) -> Iterator[str]:
    yield f"pod {entry['pod']}  state {entry['state']}"
    if pod.allocation is None:
        yield from _asked(pod)
    else:
        rows = []
        for container in entry["containers"]:
            devices = container["devices"] or [{"uuid": "-", "memory": "-", "cores": "-"}]
            rows += [(container["name"], container["kind"], *list(device.values())[:3]) for device in devices]
        yield from table(("CONTAINER", "KIND", "CARD", "MEMORY MiB", "CORES %"), rows)
    held = [(phase, uuid, *use.values()) for phase in ("peak", "steady", "held") for uuid, use in entry[phase].items()]
    if held:
        yield from table(("PHASE", "CARD", "SLOTS", "MEMORY MiB", "CORES %"), held)
    totals = [(phase, *entry["total"][phase].values()) for phase in ("peak", "steady")]
    yield from table(("TOTAL", "COUNT", "MEMORY MiB", "CORES %"), totals)
    for device in entry.get("devices", ()):
        yield f"held by the pod as a whole: {device['uuid']} {device['memory']} MiB {device['cores']} %"
    if "problem" in entry:
        yield f"{entry['problem']['code']}: {entry['problem']['message']}"
    for uncertain in entry["total"]["uncertain"]:
        yield f"memory not known before a card is chosen: {uncertain}"
    yield ""


def _asked(pod: Pod) -> Iterator[str]:
    """Show what each container asks for, of a pod that has no cards yet."""
    rows = [
        (container["name"], container["kind"], "-" if request is None else request_text(request))
        for container in asks(pod.containers)
        for request in container["requests"] or (None,)
    ]
    yield from table(("CONTAINER", "KIND", "ASKS FOR"), rows)
