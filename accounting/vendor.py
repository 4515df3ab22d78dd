"""What differs between device vendors, as a value.

Why it exists: resource and annotation names, units and defaults belong to a vendor, not to the rules. It must not hold
any rule. Invariant: nothing else in this package names a vendor's resource or annotation.
Source: HAMi v2.10 chart defaults and annotation names.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Vendor:
    """One vendor's names, units and defaults. Memory is MiB per card, cores are percent of a card."""

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

    @property
    def resources(self) -> tuple[str, str, str, str]:
        """Every resource name that belongs to this vendor's cards."""
        return self.count_resource, self.memory_resource, self.memory_percentage_resource, self.cores_resource


NVIDIA = Vendor(
    key="NVIDIA",
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
    priority_resource="nvidia.com/priority",
    priority_variable="CUDA_TASK_PRIORITY",
)
