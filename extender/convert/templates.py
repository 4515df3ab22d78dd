"""The Pod of a workload's template.

Why it exists: people write Deployments and Jobs, and want to know where one of their pods would go. It must not create
anything. Invariant: the pod has the workload's name and namespace, and the template's labels, annotations and spec.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from extender.convert.manifests import InputError, Manifest

_TEMPLATE = ("spec", "template")
#: Kind -> path of its pod template.
TEMPLATES: dict[str, tuple[str, ...]] = {
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "DaemonSet": _TEMPLATE,
    "Deployment": _TEMPLATE,
    "Job": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "ReplicationController": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
}


def pod_manifests(manifests: Iterable[Manifest]) -> Iterator[Manifest]:
    """Yield the Pods, and one Pod for each workload; other kinds are skipped. Raises `InputError`."""
    for manifest in manifests:
        if manifest.kind == "Pod":
            yield manifest
        elif manifest.kind in TEMPLATES:
            yield _pod_of(manifest)


def _pod_of(manifest: Manifest) -> Manifest:
    value: Any = manifest.whole()
    template: Any = value
    for field in TEMPLATES[manifest.kind]:
        template = template.get(field) if isinstance(template, dict) else None
    if not isinstance(template, dict):
        raise InputError(".".join(TEMPLATES[manifest.kind]), "(none)", f"{manifest.where} has no pod template")
    own, meta = value.get("metadata"), template.get("metadata")
    own, meta = (each if isinstance(each, dict) else {} for each in (own, meta))
    named = {key: own[key] for key in ("name", "namespace") if key in own}
    return Manifest("Pod", manifest.where, template | {"kind": "Pod", "metadata": meta | named})
