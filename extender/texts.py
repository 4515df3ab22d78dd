"""The fixed texts that kube-scheduler shows for a refused node.

Why it exists: kube-scheduler counts equal texts over all nodes and cuts the event at 1,024 bytes, so the texts are
few and carry no numbers and no names; `explain` has those. It must not decide anything. Invariant: one text per code.
"""

from accounting.status import CODES, Code

TEXT: dict[Code, str] = {
    Code.NODE_UNKNOWN: "GPU node is not known to the extender",
    Code.NO_DEVICES: "node registers no GPU",
    Code.INSUFFICIENT_DEVICES: "node has too few GPUs",
    Code.INSUFFICIENT_NODE_COUNT: "node's GPU count is used up",
    Code.INSUFFICIENT_SLOTS: "no free slot on the GPUs",
    Code.INSUFFICIENT_MEMORY: "insufficient GPU memory on the cards",
    Code.INSUFFICIENT_CORES: "insufficient GPU cores on the cards",
    Code.EXCLUSIVE_CONFLICT: "GPU is or must be used exclusively",
    Code.DEVICE_UNHEALTHY: "GPU is unhealthy",
    Code.DEVICE_CORDONED: "GPU is cordoned",
    Code.DEVICE_BLOCKED: "GPU is blocked by an unreadable allocation",
    Code.DEVICE_OVERCOMMITTED: "GPU is over-committed",
    Code.TYPE_MISMATCH: "GPU model is excluded by the pod",
    Code.UUID_MISMATCH: "GPU is excluded by the pod",
    Code.NUMA_MISMATCH: "no NUMA node has enough fitting GPUs",
    Code.MODE_MISMATCH: "GPU mode is not accepted",
    Code.QUOTA_EXCEEDED: "namespace's GPU quota is exceeded",
    Code.ALLOCATION_UNREADABLE: "node is blocked by an unreadable GPU allocation",
    Code.INVALID_REQUEST: "GPU request or annotation of the pod is not valid",
    Code.SEARCH_LIMIT: "search for GPUs was cut off",
}

#: Texts by a code's number, `<code>: <text>`, so that the event can be looked up and searched for.
WIRE_TEXTS: tuple[str, ...] = tuple(f"{code}: {TEXT[code]}" for code in CODES)
