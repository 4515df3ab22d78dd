"""Readers of texts from outside, each with what must hold for any bytes.

It exists so that a fuzzer and the replay of its findings ask the same. It must not know the fuzzer. Invariants: a
target raises for a bug and for nothing else; what it does follows from its bytes alone; its first byte chooses among
the texts of its kind, the rest is the text.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.fuzz import of_bodies, of_files, of_objects

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS = ROOT / "tests" / "data" / "fuzz"
Read = Callable[[int, bytes], None]


class Target(NamedTuple):
    """One kind of texts."""

    read: Read
    """Takes the first byte and the rest."""
    seeds: Callable[[], Iterator[bytes]]
    """Valid texts, to begin with."""
    is_json: bool = False

    def run(self, data: bytes) -> None:
        """Read some bytes."""
        self.read(data[0] if data else 0, data[1:])


TARGETS: Mapping[str, Target] = {
    "allocations": Target(of_objects.allocation, of_objects.allocation_seeds),
    "selections": Target(of_objects.selection, of_objects.selection_seeds),
    "registers": Target(of_objects.register, of_objects.register_seeds),
    "quantities": Target(of_objects.quantity, of_objects.quantity_seeds),
    "watches": Target(of_objects.watch_line, of_objects.watch_seeds, is_json=True),
    "bodies": Target(of_bodies.body, of_bodies.body_seeds, is_json=True),
    "reviews": Target(of_bodies.review, of_bodies.review_seeds, is_json=True),
    "manifests": Target(of_files.manifest, of_files.manifest_seeds),
    "kubeconfigs": Target(of_files.kubeconfig, of_files.kubeconfig_seeds),
    "devices": Target(of_files.device_config, of_files.device_seeds),
    "journals": Target(of_files.journal, of_files.journal_seeds, is_json=True),
}
