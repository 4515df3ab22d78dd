"""HAMi's node locks in a run under faults.

It exists because a lock that is left keeps every pod off a node. It must not take or release one. Invariant: what is
returned is read from the API server's objects alone.
"""

from extender.convert.annotations import NODE_LOCK
from tests.apiserver.resources import NODES
from tests.apiserver.server import ApiServer
from tests.live.harness_audit import Audit


def locks(api: ApiServer) -> dict[str, str]:
    """Return the name of the pod that holds the lock, by node."""
    metas = [row.decode()["metadata"] for row in api.store.tables[NODES].rows]
    texts = {each["name"]: (each.get("annotations") or {}).get(NODE_LOCK) for each in metas}
    return {name: text.split(",")[-1] for name, text in texts.items() if text}


def held_locks(api: ApiServer, audit: Audit) -> list[str]:
    """Return the nodes that are locked by a pod that is bound to them."""
    bound = audit.bound()
    return [name for name, owner in locks(api).items() if bound.get(owner) == name]
