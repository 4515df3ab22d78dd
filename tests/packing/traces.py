"""A tiny made-up trace in the format of openb."""

from pathlib import Path

_NODES = [
    *[f"node-{number},32000,100000,4,T4" for number in range(3)],
    "node-p,16000,60000,2,P100",
]
_PODS = [
    ("4000,8000,1,470,", 8),
    ("2000,8000,1,200,", 8),
    ("8000,16000,1,1000,", 6),
    ("16000,32000,4,1000,", 2),
    ("3000,4000,0,0,", 4),
    ("2000,8000,1,1000,T4|P100", 1),
]


def write_trace(folder: Path) -> str:
    """Write the node list and the default pod list; returns the folder."""
    nodes = ["sn,cpu_milli,memory_mib,gpu,model", *_NODES]
    (folder / "openb_node_list_gpu_node.csv").write_text("\n".join(nodes) + "\n")
    rows = [row for row, count in _PODS for _ in range(count)]
    pods = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec", *(f"pod-{n},{row}" for n, row in enumerate(rows))]
    (folder / "openb_pod_list_default.csv").write_text("\n".join(pods) + "\n")
    return str(folder)
