"""Bad input to a command gives exit status 2, nothing on standard output, and one line that names field and value.

It exists because a script must be able to trust the exit status and a person the message. It must not depend on the
rest of the wording. Invariant: no input leads to a traceback.
"""

import json
import socket
from pathlib import Path

import pytest

from tests.extender.inside import refusal_inside
from tests.extender.nesting import NESTED, SAID
from tests.extender.objects import Json, asks, container, listed, node, pod
from tests.extender.processes import refusal, run

BAD_PODS: dict[str, tuple[bytes, list[str]]] = {
    "empty": (b"", ["-f: -:", "no object"]),
    "not YAML": (b"kind: [Pod", ["-f: -:", "not YAML"]),
    "truncated JSON": (b'{"kind": "Pod",', ["-f: -:", "not JSON"]),
    "binary": (bytes(range(256)), ["-f: -:"]),
    "nested too deeply": (b'{"kind":"Pod","x":%b}' % NESTED, ["-f: -:", SAID]),
    "no pod": (json.dumps(node()).encode(), ["kind: Node:", "no Pod"]),
    "no spec": (b"kind: Pod\nmetadata: {name: p}", ["spec.containers: []:", "default/p"]),
    "no containers": (json.dumps(pod("p", [])).encode(), ["spec.containers: []:"]),
    "containers null": (b"kind: Pod\nmetadata: {name: p}\nspec: {containers: null}", ["spec.containers: []:"]),
    "containers a text": (b"kind: Pod\nmetadata: {name: p}\nspec: {containers: x}", ['spec.containers: "x":']),
    "no name": (b"kind: Pod\nspec: {containers: [{name: a}]}", ["metadata.name:"]),
    "an annotation that is a number": (
        b"kind: Pod\nmetadata: {name: p, annotations: {a: 17}}",
        ["metadata.annotations[a]: 17:"],
    ),
    "one bad pod of two": (listed(pod(), pod("q", [])).encode(), ["spec.containers: []:", "default/q"]),
}
#: Resources, and what the message must name.
BAD_REQUESTS: dict[str, tuple[Json, list[str]]] = {
    "negative count": (asks("-1"), ["limits[nvidia.com/gpu]: -1:", "negative"]),
    "fractional count": (asks("1500m"), ["limits[nvidia.com/gpu]: 1500m:", "integer"]),
    "memory in bytes": (asks(1, "16Gi"), ["limits[nvidia.com/gpumem]: 16Gi:", "unit is MiB, write 16384"]),
    "memory beyond int32": (asks(1, "2147483648"), ["limits[nvidia.com/gpumem]: 2147483648:"]),
    "percentage above 100": (asks(1, percentage="101"), ["limits[nvidia.com/gpumem-percentage]: 101:", "0 and 100"]),
    "negative percentage": (asks(1, percentage="-1"), ["limits[nvidia.com/gpumem-percentage]: -1:"]),
    "request other than the limit": (
        {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}},
        ["requests[nvidia.com/gpu]: 1:", "limit 2"],
    ),
    "a quantity that is an object": (asks(1, {"a": 1}), ["limits[nvidia.com/gpumem]: {'a': 1}:"]),
}
BAD_ALLOCATIONS = {
    "a memory that is no number": "GPU-1,NVIDIA,x,0:;",
    "a negative memory": "GPU-1,NVIDIA,-5,0:;",
    "a part without a comma": "junk:;",
    "no card in too few rows": ";",
}


@pytest.mark.parametrize("stdin, texts", BAD_PODS.values(), ids=BAD_PODS.keys())
def test_account_refuses_what_is_no_pod(stdin: bytes, texts: list[str]) -> None:
    line = refusal_inside("account", "-f", "-", "-o", "json", stdin=stdin)
    assert [text for text in texts if text not in line] == []


@pytest.mark.parametrize("name", ["binary", "nested too deeply", "one bad pod of two"])
def test_a_process_refuses_it_as_well(name: str) -> None:
    stdin, texts = BAD_PODS[name]
    line = refusal("account", "-f", "-", "-o", "json", stdin=stdin)
    assert [text for text in texts if text not in line] == []


@pytest.mark.parametrize("resources, texts", BAD_REQUESTS.values(), ids=BAD_REQUESTS.keys())
def test_account_refuses_a_request_that_cannot_be_used(resources: Json, texts: list[str]) -> None:
    line = refusal_inside("account", "-f", "-", stdin=json.dumps(pod("p", [container("main", resources)])).encode())
    assert line.startswith("error: spec.containers[main].resources.")
    assert [text for text in texts if text not in line] == []


@pytest.mark.parametrize("text", BAD_ALLOCATIONS.values(), ids=BAD_ALLOCATIONS.keys())
def test_account_refuses_an_allocation_that_cannot_be_read(text: str) -> None:
    asking = pod("p", [container("a", asks(1)), container("b", asks(1))], allocation=text)
    line = refusal_inside("account", "-f", "-", stdin=json.dumps(asking).encode())
    assert line.startswith("error: metadata.annotations[hami.io/vgpu-devices-allocated]: ")


@pytest.mark.parametrize(
    "content",
    [None, b"", b"hello", bytes(range(256)), b'{"kind": "List", "items": [null]}', b"metadata: {}"],
    ids=["missing", "empty", "a text", "binary", "a null object", "no kind"],
)
def test_verify_refuses_what_is_no_cluster_file(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "cluster.json"
    if content is not None:
        path.write_bytes(content)
    line = refusal("verify", "--cluster", path, "-o", "json")
    assert str(path) in line


def test_a_folder_and_a_missing_file_are_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    assert refusal("account", "-f", tmp_path).startswith(f"error: -f: {tmp_path}: ")
    assert refusal("serve", "--port", "0", "--cluster", missing).startswith(f"error: --cluster: {missing}: ")


def test_explain_refuses_a_bad_pod_before_a_bad_cluster_and_prints_nothing(tmp_path: Path) -> None:
    good = tmp_path / "good.json"
    good.write_text(listed(node("n1")), encoding="utf-8")
    assert "spec.containers" in refusal(
        "explain", "-f", "-", "--cluster", good, stdin=json.dumps(pod("p", [])).encode()
    )
    line = refusal("explain", "-f", "-", "--cluster", tmp_path / "no.json", stdin=json.dumps(pod()).encode())
    assert line.startswith("error: --cluster: ")


@pytest.mark.parametrize(
    "arguments, texts",
    [
        pytest.param(["account"], ["-f"], id="nothing to account"),
        pytest.param(["account", "-f", "-", "--nope"], ["--nope"], id="an unknown flag"),
        pytest.param(["nope"], ["nope"], id="an unknown command"),
        pytest.param([], ["COMMAND"], id="no command"),
        pytest.param(["account", "-f", "-", "-o", "xml"], ["xml"], id="an unknown output"),
        pytest.param(["explain", "-f", "-"], ["--cluster"], id="no cluster"),
        pytest.param(["serve", "--port", "65536"], ["--port", "65536"], id="a port that is too large"),
        pytest.param(["serve", "--port", "http"], ["--port", "http"], id="a port that is no number"),
        pytest.param(["serve", "--port", "0", "--bind-address", "x" * 80], ["--bind-address"], id="no address"),
        pytest.param(["account", "-f", "-", "--memory-factor", "1.5"], ["--memory-factor", "1.5"], id="a fraction"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(arguments: list[str], texts: list[str]) -> None:
    line = refusal(*arguments)
    assert [text for text in texts if text not in line] == []


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}" in refusal("serve", "--port", str(port))


@pytest.mark.parametrize("command", ["serve", "account", "explain", "verify"])
def test_every_command_has_help(command: str) -> None:
    result = run(command, "--help")
    assert (result.status, result.err) == (0, "")
    assert b"usage: gpu-extender " + command.encode() in result.out
