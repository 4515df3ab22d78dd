"""The fixed texts that kube-scheduler shows for a refused node: what is in the way; what to do.

Why it exists: kube-scheduler counts equal texts over all nodes and cuts the event at 1,024 bytes, so the texts are
few and carry no numbers and no names; `explain` has those. It must not decide anything. Invariants: one text per code;
none has a comma or a full stop, by which kube-scheduler joins them, or a percent sign.
"""

from accounting.status import CODES, Code

TEXT: dict[Code, str] = {
    Code.NODE_UNKNOWN: "GPU extender does not know the node yet; wait or look at the extender's log",
    Code.NO_DEVICES: "node registers no GPU that can be read; if it has one look at its device plugin",
    Code.INSUFFICIENT_DEVICES: "node has fewer GPUs than one container wants; ask for fewer",
    Code.INSUFFICIENT_NODE_COUNT: "node offers no more GPUs; wait for pods to end or look at its device plugin",
    Code.INSUFFICIENT_SLOTS: "GPUs have no free slot; wait for pods to end",
    Code.INSUFFICIENT_MEMORY: "GPUs have too little free memory; ask for less or wait for pods to end",
    Code.INSUFFICIENT_CORES: "GPUs have too few free cores; ask for fewer or wait for pods to end",
    Code.EXCLUSIVE_CONFLICT: "GPU is or would be used exclusively; ask for less than all cores or wait for pods to end",
    Code.DEVICE_UNHEALTHY: "GPU is unhealthy; look at the node's device plugin and driver",
    Code.DEVICE_CORDONED: "GPU is cordoned; uncordon it or wait",
    Code.DEVICE_BLOCKED: "GPU is blocked by a pod whose allocation is unreadable; gpu-extender verify names it",
    Code.DEVICE_OVERCOMMITTED: "GPU is over-committed; wait for pods to end or look at gpu-extender verify",
    Code.TYPE_MISMATCH: "GPU model is excluded by the pod; change its annotations for the model",
    Code.UUID_MISMATCH: "GPU is excluded by the pod; change its annotations for the UUID",
    Code.NUMA_MISMATCH: "no NUMA node has enough fitting GPUs; ask for fewer or do not bind the pod to one",
    Code.MODE_MISMATCH: "GPU mode is not accepted; change the pod's annotation for the mode or the node's mode",
    Code.QUOTA_EXCEEDED: "namespace's GPU quota is exceeded; raise it or wait for pods of the namespace to end",
    Code.ALLOCATION_UNREADABLE: "node is blocked by a pod or claim with unknown GPUs; gpu-extender verify names it",
    Code.INVALID_REQUEST: "GPU request or annotation of the pod is not valid; gpu-extender explain names the field",
    Code.SEARCH_LIMIT: "search for GPUs was cut off; ask for GPUs in fewer containers",
}


def wire_text(code: Code) -> str:
    """Return what a refusal for this reason says, whether filter or bind refuses."""
    return f"{code}: {TEXT[code]}"


#: Texts by a code's number, `<code>: <text>`, so that the event can be looked up and searched for.
WIRE_TEXTS: tuple[str, ...] = tuple(map(wire_text, CODES))
