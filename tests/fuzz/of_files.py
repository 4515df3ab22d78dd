"""Files: manifests, kubeconfigs, device configurations and journals.

It must not know the fuzzer. Invariant: what cannot be used is refused with the error that a command prints in one line;
what can be used is used.
"""

import asyncio
import atexit
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import msgspec
import yaml

from extender.cluster import Cluster, collect
from extender.commands.vendor_config import read_vendor_config
from extender.config import Settings
from extender.convert import InputError, parse_json_manifests, parse_manifests, pod_manifests
from extender.journal import journal as journals
from extender.kube.connection import ConnectError, Connection
from extender.kube.reflector import Change
from extender.live.replaying import Replay
from extender.server import verify_report
from tests.extender.objects import bound, listed, node, pod, quota

_ROOT = Path(__file__).resolve().parent.parent.parent
_SETTINGS = Settings()
_FOLDER = Path(tempfile.mkdtemp(prefix="gpu-extender-fuzz-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)


def _file(name: str, data: bytes) -> str:
    path = _FOLDER / name
    path.write_bytes(data)
    return str(path)


def _says_something(error: Exception) -> None:
    assert str(error), "an error without a text"


def manifest(chosen: int, data: bytes) -> None:
    """Read manifests, as YAML or JSON: a whole cluster, or workloads and their pods."""
    parse = (parse_manifests, parse_json_manifests)[chosen % 2]
    try:
        found = list(parse(data, "--cluster", "file"))
        if chosen % 4 >= 2:
            found = list(pod_manifests(found))
        objects = collect(iter(found), _SETTINGS)
    except InputError as error:
        _says_something(error)
        return
    cluster = Cluster(_SETTINGS)
    cluster.load(objects)
    msgspec.json.encode(verify_report(cluster))


def manifest_seeds() -> Iterator[bytes]:
    """Return a cluster as JSON and as YAML, and a workload."""
    objects = [node("n1"), bound("p", "n1", "GPU-n1-0", 30), pod("q"), quota({"requests.nvidia.com/gpu": "4"})]
    yield b"\1" + listed(*objects).encode()
    yield b"\0" + "---\n".join(yaml.safe_dump(each) for each in objects).encode()
    spec = {"template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("t")["spec"]}}
    yield b"\2" + yaml.safe_dump({"kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}).encode()
    yield b"\2" + b"a: &a [1]\nb: *a\n--- |\n text\n--- 2020-01-01\n"


def kubeconfig(_chosen: int, data: bytes) -> None:
    """Read a kubeconfig. Programs that it names are not run, and no server is asked for tokens."""
    if b"provider" in data:
        return
    path = _file("kubeconfig", data)

    async def opened() -> None:
        try:
            connection = await Connection.open(path)
        except ConnectError as error:
            _says_something(error)
        else:
            await connection.close()

    with mock.patch("asyncio.create_subprocess_exec", side_effect=FileNotFoundError(2, "No such file")):
        asyncio.run(opened())


def kubeconfig_seeds() -> Iterator[bytes]:
    """Return kubeconfigs with tokens, names and passwords."""
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "c", "args": ["a"], "env": []}
    for user in ({"exec": program}, {"token": "t"}, {"username": "u", "password": "p"}, {"tokenFile": "/nowhere"}, {}):
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
            "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1", "proxy-url": "http://127.0.0.1:2"}}],
            "users": [{"name": "u", "user": user}],
        }
        yield b"\0" + yaml.safe_dump(document).encode()


def device_config(_chosen: int, data: bytes) -> None:
    """Read a device configuration of HAMi."""
    try:
        read_vendor_config(_file("devices", data))
    except InputError as error:
        _says_something(error)


def device_seeds() -> Iterator[bytes]:
    """Return a configuration with every known block."""
    nvidia = {"resourceCountName": "a.b/c", "resourceMemoryName": "a.b/d", "defaultGPUNum": 1, "runtimeClassName": "r"}
    ascend = {
        "chipName": "910A",
        "commonWord": "Ascend910A",
        "resourceName": "huawei.com/Ascend910A",
        "resourceMemoryName": "huawei.com/Ascend910A-memory",
        "memoryAllocatable": 32768,
        "memoryCapacity": 32768,
        "aiCore": 30,
        "templates": [{"name": "vir02", "memory": 2184, "aiCore": 2}],
    }
    yield b"\0" + yaml.safe_dump({"nvidia": nvidia}).encode()
    yield b"\0" + yaml.safe_dump({"nvidia": nvidia, "vnpus": [ascend]}).encode()
    blocks = {name: {"resourceCountName": f"{name}.com/n"} for name in ("hygon", "kunlun", "vastai", "biren")}
    yield b"\0" + yaml.safe_dump(blocks).encode()
    inner = yaml.safe_dump({"nvidia": nvidia})
    yield b"\0" + yaml.safe_dump({"kind": "ConfigMap", "data": {"device-config.yaml": inner}}).encode()


def journal(_chosen: int, data: bytes) -> None:
    """Replay a journal. Its expected workload is not built: that takes seconds."""
    try:
        entries = [
            (line, entry)
            for line, entry in journals.read_journal(_file("journal", data))
            if not isinstance(entry, journals.Expect)
        ]
    except ValueError as error:
        _says_something(error)
        return
    Replay(_SETTINGS).run(entries)


def journal_seeds() -> Iterator[bytes]:
    """Return a journal with one entry of most kinds."""
    wanted = pod("p", memory=30)
    wanted["metadata"]["uid"] = "u"
    told = [
        journals.Changed("Node", Change.PUT, msgspec.json.encode(node("n1")).decode()),
        journals.Changed("Pod", Change.PUT, msgspec.json.encode(wanted).decode()),
        journals.Assume("u", "n1", "GPU-n1-0,NVIDIA,30,0:;"),
        journals.Finish("u"),
        journals.Replaced("Pod", ["u"]),
        journals.Unclaim("u"),
        journals.Forget("u"),
        journals.Refuse("u", "n2", "NodeUnknown"),
        journals.Lose("u"),
        journals.Plugin("n1", "NVIDIA", alive=False),
    ]
    lines = [msgspec.json.encode(each) for each in told]
    for number in range(1, len(lines) + 1):
        yield b"\0" + b"\n".join(lines[:number]) + b"\n"
    asked = msgspec.json.encode({"Pod": wanted, "Nodes": None, "NodeNames": ["n1"]}).decode()
    answer = journals.Verb("filter", "{}", asked)
    yield b"\0" + b"\n".join([*lines[:2], msgspec.json.encode(answer)]) + b"\n"
