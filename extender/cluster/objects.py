"""The objects that files tell of.

It must not know how a file is read, nor what is done with an object. Invariant: an object that does not decode is a
problem here, and nothing else.
"""

from dataclasses import dataclass, field

from accounting.disruption import DisruptionBudget
from accounting.holders import VirtualMachineInstance
from accounting.node import Node
from accounting.pod import Pod
from accounting.quota import Quota
from accounting.status import Problem
from extender.cluster.dra_objects import DraObjects


@dataclass(frozen=True, slots=True)
class Objects:
    """The result of reading files: the objects that decode, and the problems of the others."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    quotas: tuple[Quota, ...] = ()
    problems: tuple[Problem, ...] = ()
    budgets: tuple[DisruptionBudget, ...] = ()
    vmis: tuple[VirtualMachineInstance, ...] = ()
    dra: DraObjects = field(default_factory=DraObjects)
