"""What differs between device vendors, as a value.

Why it exists: resource and annotation names, units and defaults belong to a vendor, not to the rules. It must not hold
any rule; `accounting.vendors` has the table of them. Invariant: nothing else in this package names a vendor's resource
or annotation.
"""

from dataclasses import dataclass
from enum import StrEnum

#: The vendor of cards, requests and rows that name none.
DEFAULT_VENDOR_KEY = "NVIDIA"


class RegisterFormat(StrEnum):
    """How a node's register annotation is written; see `accounting.register`."""

    JSON = "json"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Template:
    """A size in which a card is given away: its name for the device plugin, and its memory in MiB."""

    name: str
    memory: int


@dataclass(frozen=True, slots=True)
class Vendor:
    """One vendor's names, units and defaults. Memory is MiB per card, cores are percent of a card. "": no such name."""

    key: str
    """Text in the type field of an allocation row."""
    count_resource: str
    memory_resource: str
    memory_percentage_resource: str
    cores_resource: str
    register_annotation: str
    """On the node: the cards that its device plugin offers."""
    cordon_annotation: str
    """On the node: comma list of card UUIDs that take no new rows."""
    devices_to_allocate_annotation: str
    devices_allocated_annotation: str
    """On the pod: who holds what; the one source of accounting."""
    use_uuid_annotation: str
    nouse_uuid_annotation: str
    use_type_annotation: str
    nouse_type_annotation: str
    numa_bind_annotation: str
    mode_annotation: str
    memory_factor: int = 1
    """MiB per unit of the memory resource, applied once; 0 and 1 mean no scaling."""
    default_memory_mib: int = 0
    """Taken when neither memory nor percentage is asked; 0 means the whole card. Not multiplied by the factor."""
    default_cores: int = 0
    priority_resource: str = ""
    """Priority of the work on the card; it places nothing, the device plugin's library reads `priority_variable`."""
    priority_variable: str = ""
    """Environment variable that takes the priority's value; empty: none."""
    bare_count_is_exclusive: bool = False
    """At admission a container that asks for whole cards and no cores gets all cores, so that nobody may join."""
    register_format: RegisterFormat = RegisterFormat.JSON
    registered_cores: int = 0
    """Cores of every card, whatever its register says; 0: as registered."""
    handshake_annotation: str = ""
    """On the node: how the plugin and the scheduler tell each other that they live; see `accounting.handshake`."""
    mig_annotation: str = ""
    """On the pod: profiles and placements of its rows on cards in MIG mode."""
    also_use_uuid_annotation: str = ""
    also_nouse_uuid_annotation: str = ""
    """A second pair of names for the same choice; a card must pass both pairs."""
    slots_only: bool = False
    """A row takes a slot and nothing else."""
    templates: tuple[Template, ...] = ()
    """Sizes, the smallest first: memory is rounded up to one of them; what is larger than all takes the whole card."""
    largest_memory_mib: int = 0
    """With templates: more than this cannot be asked of one card. 0: no such limit."""
    cores_of_memory_mib: int = 0
    """Cores follow from memory: memory * 100 / this number. 0: they do not."""
    one_size_per_card: bool = False
    """All rows on a card have the same memory."""
    one_card_only: bool = False
    """Several cards of one container need a choice of links that is not managed."""
    several_take_all: bool = False
    """A container with several cards takes every one of them for itself."""
    several_only_whole: bool = False
    """A container with several cards may not ask for a part of each."""
    unmanaged_resource: str = ""
    """A resource that asks for a mode which is not managed."""
    unmanaged_annotations: tuple[tuple[str, str], ...] = ()
    """(annotation, value) of a pod that asks for a mode which is not managed."""
    runtime_annotation: str = ""
    """On the pod: JSON list of the UUID and the template of every row, which the plugin wants beside the rows."""
    predicate_time_annotation: str = ""
    """On the pod: when its cards were chosen, in Unix seconds."""
    link_scores_annotation: str = ""
    """On the node: scores of the links between its cards; empty: the vendor's plugin writes none."""

    def __hash__(self) -> int:
        """Hash by the key alone, because every pod looks up what is remembered per vendor."""
        return hash(self.key)

    @property
    def resources(self) -> tuple[str, ...]:
        """Every resource name that belongs to this vendor's cards; the first is the count."""
        names = self.count_resource, self.memory_resource, self.memory_percentage_resource, self.cores_resource
        return tuple(name for name in (*names, self.unmanaged_resource) if name)

    @property
    def domain(self) -> str:
        """What the names of its resources begin with."""
        return self.count_resource.partition("/")[0] + "/"


NVIDIA = Vendor(
    key=DEFAULT_VENDOR_KEY,
    count_resource="nvidia.com/gpu",
    memory_resource="nvidia.com/gpumem",
    memory_percentage_resource="nvidia.com/gpumem-percentage",
    cores_resource="nvidia.com/gpucores",
    register_annotation="hami.io/node-nvidia-register",
    cordon_annotation="hami.io/device-cordon",
    devices_to_allocate_annotation="hami.io/vgpu-devices-to-allocate",
    devices_allocated_annotation="hami.io/vgpu-devices-allocated",
    use_uuid_annotation="nvidia.com/use-gpuuuid",
    nouse_uuid_annotation="nvidia.com/nouse-gpuuuid",
    use_type_annotation="nvidia.com/use-gputype",
    nouse_type_annotation="nvidia.com/nouse-gputype",
    numa_bind_annotation="nvidia.com/numa-bind",
    mode_annotation="nvidia.com/vgpu-mode",
    link_scores_annotation="hami.io/node-nvidia-score",
    priority_resource="nvidia.com/priority",
    priority_variable="CUDA_TASK_PRIORITY",
    bare_count_is_exclusive=True,
    mig_annotation="hami.io/vgpu-mig-allocations",
)
