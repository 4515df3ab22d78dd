"""`explain` names the pods that would have to go for a pod that fits nowhere.

It exists because "unschedulable" does not say what would help. It must not know how victims are found. Invariant: only
pods that may be evicted are named.
"""

import json
from pathlib import Path

from tests.extender.inside import run_inside
from tests.extender.objects import Json, bound, listed, node, pod


def explained(folder: Path, asking: Json, *objects: Json) -> tuple[Json, str]:
    cluster, manifest = folder / "cluster.json", folder / "pod.json"
    cluster.write_text(listed(*objects), encoding="utf-8")
    manifest.write_text(json.dumps(asking), encoding="utf-8")
    command = ("explain", "-f", str(manifest), "--cluster", str(cluster))
    return json.loads(run_inside(*command, "-o", "json").out), run_inside(*command).out.decode()


def with_priority(made: Json, priority: int) -> Json:
    made["spec"]["priority"] = priority
    return made


def test_who_would_have_to_go_where_and_at_what_priority(tmp_path: Path) -> None:
    objects = [node("n1"), node("n2"), node("n3")]
    objects += [with_priority(bound("a", "n1", "GPU-n1-0", 900), 7)]
    objects += [with_priority(bound("b", "n2", "GPU-n2-0", 900), 5)]
    objects += [with_priority(bound("c", "n3", "GPU-n3-0", 900), 100)]
    answer, text = explained(tmp_path, with_priority(pod("high", memory=500), 100), *objects)
    assert answer["preemption"] == [
        {
            "node": name,
            "violations": 0,
            "victims": [{"pod": f"default/{who}", "uid": f"uid-{who}", "priority": priority}],
        }
        for name, who, priority in (("n2", "b", 5), ("n1", "a", 7))
    ]
    assert "would fit on n2 without default/b (priority 5)" in text


def test_nobody_is_named_where_nobody_helps_or_nobody_needs_to_go(tmp_path: Path) -> None:
    full = with_priority(bound("a", "n1", "GPU-n1-0", 900), 7)
    assert explained(tmp_path, with_priority(pod("same", memory=500), 7), node("n1"), full)[0]["preemption"] == []
    assert "preemption" not in explained(tmp_path, with_priority(pod("small"), 7), node("n1"), full)[0]
