"""From watched VirtualMachineInstances to the cluster.

It must not do I/O, nor decide which pod is a launcher. Invariant: one object that does not decode changes nothing but
itself, and a VMI that is not known makes no launcher.
"""

from collections.abc import Callable

import msgspec

from accounting.holders import VmiKey
from extender.cluster import Cluster
from extender.convert import convert_vmi, misnamed
from extender.kube.client import KubeClient
from extender.kube.discovery import OptionalReflector, OptionalResource
from extender.kube.reflector import Change, ReflectorSettings, Sink, Taken
from extender.logs import logger
from extender.wire import kubevirt_v1
from extender.wire.shallow import read_with

VMIS = OptionalResource("kubevirt.io", ("v1",), "virtualmachineinstances")


def vmi_reflectors(
    client: KubeClient, cluster: Cluster, settings: ReflectorSettings, journaled: Callable[[Sink, str], Sink]
) -> list[OptionalReflector]:
    """Return what watches VMIs; nothing where no raw key is counted. `journaled`: wraps the sink of a kind."""
    if not cluster.settings.raw_keys:
        return []
    sink = VmiSink(cluster)
    journaling = journaled(sink, "VirtualMachineInstance")
    return [OptionalReflector(client, VMIS, journaling, settings, known=sink.known)]


class VmiSink:
    """VMIs by namespace and name."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._decoder = msgspec.json.Decoder(kubevirt_v1.VirtualMachineInstance)

    def known(self) -> set[str]:
        """Return what a list would have to name."""
        return {f"{vmi.namespace}/{vmi.name}" for vmi in self._cluster.raw.vmis()}

    def change(self, change: Change, raw: msgspec.Raw) -> Taken:
        """Take one VMI. What is known of one that does not decode stays: its launchers go on being counted once."""
        try:
            wire = read_with(self._decoder, raw)
        except msgspec.DecodeError as error:
            logger().error("virtual machine instance does not decode", why=str(error))
            return Taken(None)
        illegal = misnamed(wire.metadata)
        vmi = convert_vmi(wire, self._cluster.settings)
        if illegal or not vmi.name:
            logger().error("virtual machine instance without a legal name", why=str(illegal[0]) if illegal else "")
            return Taken(None)
        if change is Change.DELETED:
            self._cluster.remove_vmi(vmi.key)
        else:
            self._cluster.put_vmi(vmi)
        version = wire.metadata.resourceVersion if wire.metadata is not None else None
        return Taken(f"{vmi.namespace}/{vmi.name}", version)

    def replaced(self, identities: set[str]) -> None:
        """Drop every VMI that a list did not name."""
        for identity in sorted(self.known() - identities):
            self._cluster.remove_vmi(VmiKey(*identity.split("/")))
