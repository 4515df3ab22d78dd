"""The webhooks on a real kube-apiserver: called over TLS, admitting, denying, renewed while it asks."""

import asyncio
import base64
import random
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from aiohttp import web

from accounting.quantity import parse_quantity
from tests.e2e.admitting import JUDGED, UNJUDGED, Admitting, pod, told
from tests.e2e.control_plane import ControlPlane
from tests.e2e.processes import ROOT, free_ports
from tests.e2e.test_holders import CRDS, KUBEVIRT
from tests.e2e.world import Refusal
from tests.extender.objects import ALLOCATION, asks, container, rows, sidecar
from tests.extender.vmis import K, raw_pod, vmi

Json = dict[str, Any]
pytestmark = pytest.mark.scenario("admission")
GI = 1024


@pytest_asyncio.fixture
async def cluster(plane: ControlPlane, folder: Path) -> AsyncIterator[Admitting]:
    async with Admitting(plane, folder) as admitting:
        yield admitting


# -- the worked examples -----------------------------------------------------------------------------------------------


@pytest.mark.quick
async def test_seed_examples(cluster: Admitting) -> None:
    """A quota of 24 Gi: init 30 is denied, sidecar 10 and app 10 are charged 20."""
    memory = "requests.nvidia.com/gpumem"
    await cluster.quota({memory: str(24 * GI)})
    await cluster.until_quota_is("nvidia.com/gpumem", hard=24 * GI)
    refusal = await cluster.refusal(told(f"init {30 * GI}, app {4 * GI}"))
    assert refusal == (
        '403: admission webhook "create.gpu-extender.io" denied the request: exceeded quota judged/gpus: '
        "nvidia.com/gpumem: hard 24576, used 0, the pod adds 30720"
    )
    made = await cluster.create(told(f"sidecar {10 * GI}, app {10 * GI}"))
    assert made["spec"]["schedulerName"] == "gpu-scheduler"
    await cluster.place(made)
    await cluster.until_quota_is("nvidia.com/gpumem", used=20 * GI)
    status = (await cluster.admin.send("GET", f"/api/v1/namespaces/{JUDGED}/resourcequotas/gpus"))["status"]
    assert parse_quantity(status["used"][memory]).value() == 20 * GI
    assert "used 20480, the pod adds 5120" in await cluster.refusal(told(f"app {5 * GI}") | {"metadata": {"name": "q"}})


async def test_c_15_budgets_of_whole_devices_are_judged_when_vms_and_pods_are_created(
    plane: ControlPlane, folder: Path
) -> None:
    """What a VM holds counts whether or not it has a node, and a pod that no VM lists counts by itself."""
    budgets = folder / "budgets.yaml"
    budgets.write_text(yaml.safe_dump({"budgets": [{"namespace": JUDGED, "hard": {K: 4}}]}))
    machines = f"/apis/kubevirt.io/v1/namespaces/{JUDGED}/virtualmachineinstances"
    definition: Json = dict(KUBEVIRT)
    plane.apply(definition)

    async def ask(name: str, units: int) -> str:
        made = vmi(name, units=units, node=None, namespace=JUDGED, phase="Pending")
        made["metadata"].pop("uid")
        try:
            await judging.admin.send("POST", machines, made)
        except Refusal as why:
            return str(why)
        return ""

    async def used(units: int) -> None:
        async with asyncio.timeout(60):
            while True:
                options: Any = await judging.extender.send("GET", f"/api/v1/options?namespace={JUDGED}")
                if [each["budget"]["used"] for each in options["raw"] if each["key"] == K] == [units]:
                    return
                await asyncio.sleep(0.1)

    async with Admitting(plane, folder, ("--raw-key", K), ("--raw-budgets", budgets)) as judging:
        try:
            await judging.admin.send("PATCH", "/api/v1/nodes/n1/status", {"status": {"allocatable": {K: "8"}}})
            assert [await ask("a", 2), await ask("b", 1)] == ["", ""]
            await used(3)
            spoof = raw_pod("spoof", 1)
            del spoof["metadata"]["uid"]
            await judging.create(spoof | {"spec": spoof["spec"] | {"schedulerName": "nobody"}})
            target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "spoof"}, "target": target}
            await judging.admin.send("POST", f"/api/v1/namespaces/{JUDGED}/pods/spoof/binding", binding)
            await used(4)
            over = f"exceeded budget {JUDGED}: {K}: hard 4, used 4, the VM adds 1"
            assert (await ask("c", 1)).endswith(over)
            more = raw_pod("more", 1)
            del more["metadata"]["uid"]
            assert (await judging.refusal(more)).endswith(over.replace("the VM", "the pod"))
            await judging.admin.send("DELETE", f"{machines}/b")
            await used(3)
            assert await ask("c", 1) == ""
        finally:
            for name in "abc":
                plane.request("DELETE", f"{machines}/{name}")
            plane.request("DELETE", f"{CRDS}/{definition['metadata']['name']}")


# -- routing and denials -----------------------------------------------------------------------------------------------


async def test_pods_are_routed_and_completed(cluster: Admitting) -> None:
    plain = await cluster.create(pod("plain", container("a")))
    assert plain["spec"]["schedulerName"] == "default-scheduler"
    init_only = pod("init-only", container("a"), inits=[container("i", {"limits": {"nvidia.com/gpumem": "8000"}})])
    made = await cluster.create(init_only)
    assert made["spec"]["schedulerName"] == "gpu-scheduler"
    resources = made["spec"]["initContainers"][0]["resources"]
    assert resources["limits"] == resources["requests"] == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8k"}
    bare = await cluster.create(pod("bare", container("a"), inits=[sidecar("s", {"limits": {"nvidia.com/gpu": "1"}})]))
    limits = bare["spec"]["initContainers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "100"}
    other = await cluster.create(pod("other", container("a", asks(1, 5)), schedulerName="volcano"))
    assert other["spec"]["schedulerName"] == "volcano"
    ignored = await cluster.create(pod("ignored", container("a", asks(1, 5))), UNJUDGED)
    assert ignored["spec"]["schedulerName"] == "default-scheduler"


_DENIED: dict[str, tuple[Json, Json, str]] = {
    "bytes": (container("a", asks(1, "16Gi")), {}, "16Gi: unit is MiB, write 16384"),
    "percentage": (container("a", asks(1, percentage=101)), {}, "101: must be an integer between 0 and 100"),
    "count 0": (container("a", asks("0", 5)), {}, "0: asks for no card, but nvidia.com/gpumem asks for 5 of one"),
    "near miss": (
        container("a", {"limits": {"nvidia.com/gpumemory": "5"}}),
        {},
        "nvidia.com/gpumem is probably meant",
    ),
    "preset node": (container("a", asks(1, 5)), {"nodeName": "n1"}, "spec.nodeName: n1: a pod on a preset node"),
    "annotation": (
        container("a", asks(1, 5)),
        {"annotations": {"nvidia.com/gpumem": "8000"}},
        "metadata.annotations[nvidia.com/gpumem]: 8000: is not read",
    ),
    "forged": (
        container("a"),
        {"annotations": {ALLOCATION: "GPU-x,NVIDIA,20000,100:;"}},
        f"metadata.annotations[{ALLOCATION}]: GPU-x,NVIDIA,20000,100:;: belongs to the scheduler",
    ),
    "forged label": (
        container("a"),
        {"labels": {"hami.io/vgpu-node": "n1"}},
        "metadata.labels[hami.io/vgpu-node]: n1: belongs to the scheduler",
    ),
}


async def test_what_is_wrong_is_denied_with_field_and_value(cluster: Admitting) -> None:
    for name, (app, more, said) in _DENIED.items():
        for dry_run in (False, True):
            refusal = await cluster.refusal(pod("p", app, **more), dry_run=dry_run)
            assert 'admission webhook "create.gpu-extender.io" denied the request: ' in refusal, name
            assert said in refusal, name
    for quantity in ("-1", "1500m"):
        # The API server itself refuses these, before any validating webhook is asked.
        assert "spec.containers[0].resources.limits[nvidia.com/gpu]" in await cluster.refusal(
            pod("p", container("a", asks(quantity)))
        )


async def test_the_schedulers_keys_can_be_written_nowhere(cluster: Admitting) -> None:
    """Every subresource of pods that writes: what is judged, and what the API server leaves alone by itself."""
    cpu = {"requests": {"cpu": "10m"}}
    app = container("a", {"limits": asks(1, 5)["limits"], "requests": cpu["requests"]})
    await cluster.create(pod("p", app))
    path = f"/api/v1/namespaces/{JUDGED}/pods/p"
    forged = {"metadata": {"annotations": {ALLOCATION: "GPU-x,NVIDIA,1,1:;"}, "labels": {"hami.io/vgpu-node": "n1"}}}

    async def patched(where: str, body: Json) -> str:
        kind = "application/strategic-merge-patch+json"
        async with cluster.admin.session.patch(f"{path}{where}", json=body, headers={"Content-Type": kind}) as response:
            answer = await response.json(content_type=None)
            return "" if response.status < 400 else str(answer["message"])

    for where in ("", "/status"):
        assert 'admission webhook "update.gpu-extender.io" denied' in await patched(where, forged), where
        assert await patched(where, {"metadata": {"annotations": {"other": where or "x"}}}) == ""
    # These two take nothing over but what they are for.
    resized = {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "20m"}}}]}}
    assert await patched("/resize", forged | resized) == ""
    cards = {"spec": {"containers": [{"name": "a", "resources": asks(1, 6)}]}}
    assert "only cpu and memory resources are mutable" in await patched("/resize", cards)
    debug = {"spec": {"ephemeralContainers": [{"name": "d", "image": "i"}]}}
    assert await patched("/ephemeralcontainers", forged | debug) == ""
    binding: Json = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"} | forged["metadata"],
        "target": {"kind": "Node", "name": "n1"},
    }
    for where in (f"{path}/binding", f"/api/v1/namespaces/{JUDGED}/bindings"):
        with pytest.raises(Refusal, match=r'"binding\.gpu-extender\.io" denied'):
            await cluster.admin.send("POST", where, binding)
    kept = (await cluster.admin.send("GET", path))["metadata"]
    assert ALLOCATION not in kept["annotations"]
    assert "labels" not in kept
    # The scheduler's own account binds with its annotations.
    assert (await cluster.scheduler.send("POST", f"{path}/binding", binding))["status"] == "Success"
    assert (await cluster.admin.send("GET", path))["metadata"]["annotations"][ALLOCATION] == "GPU-x,NVIDIA,1,1:;"


# -- order of webhooks -------------------------------------------------------------------------------------------------


async def test_what_another_webhook_injects_after_ours(cluster: Admitting) -> None:
    """A pod that ours saw is given to it again; one that did not concern it is denied by the validating webhook."""
    injected = sidecar("injected", {"limits": {"nvidia.com/gpumem": "7"}, "requests": {"nvidia.com/gpumem": "7"}})

    async def inject(request: web.Request) -> web.Response:
        review = await request.json()
        inits = review["request"]["object"]["spec"].get("initContainers", [])
        patch = [{"op": "add", "path": "/spec/initContainers", "value": [injected, *inits]}]
        response: Json = {"uid": review["request"]["uid"], "allowed": True}
        if all(each["name"] != "injected" for each in inits):
            text = base64.b64encode(web.json_response(patch).body).decode()  # type: ignore[arg-type]
            response |= {"patchType": "JSONPatch", "patch": text}
        return web.json_response(review | {"response": response})

    certificate = ROOT / "tests" / "live" / "tls" / "server.crt"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    app = web.Application()
    app.router.add_post("/inject", inject)
    runner = web.AppRunner(app)
    await runner.setup()
    (port,) = free_ports(1)
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    try:
        cluster.plane.apply(_injector(port, certificate.parent / "ca.crt"))
        await _until(cluster, lambda made: len(made["spec"].get("initContainers", [])) == 1, UNJUDGED)
        made = await cluster.create(pod("with", container("a", asks(1, 5))))
        (first,) = made["spec"]["initContainers"]
        assert first["resources"]["limits"] == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "7"}
        refusal = await cluster.refusal(pod("without", container("a")))
        assert "spec.schedulerName: default-scheduler: must be gpu-scheduler" in refusal
        assert "was probably added after the mutating webhook had seen the pod" in refusal
    finally:
        await runner.cleanup()


def _injector(port: int, ca: Path) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        # Webhooks are called by name of their configuration.
        "metadata": {"name": "zz-injector"},
        "webhooks": [
            {
                "name": "injector.example.com",
                "clientConfig": {
                    "url": f"https://127.0.0.1:{port}/inject",
                    "caBundle": base64.b64encode(ca.read_bytes()).decode(),
                },
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
            }
        ],
    }


async def _until(cluster: Admitting, holds: Any, namespace: str) -> None:  # noqa: ANN401 - a predicate of a pod
    """Wait until a configuration has reached the API server's own memory."""
    async with asyncio.timeout(20):
        while not holds(await cluster.create(pod("probe", container("a")), namespace, dry_run=True)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


# -- the two quotas ----------------------------------------------------------------------------------------------------

_LIMITS = {"nvidia.com/gpu": 13, "nvidia.com/gpumem": 3600, "nvidia.com/gpucores": 300}


def _random_pod(chance: random.Random, name: str) -> Json:
    """A pod for which design 2.3 says that the two numbers are equal: counts of 1, absolute memory, no factor."""

    def resources() -> Json:
        if chance.random() < 0.2:
            return {}
        return asks(1, chance.randint(1, 1500), chance.choice([None, 0, 10, 50, 99]))

    inits = [
        chance.choice([container, sidecar])(f"i{place}", resources())
        for place in range(chance.choice([0, 0, 1, 2, 3, 4]))
    ]
    apps = [container(f"a{place}", resources()) for place in range(chance.randint(1, 3))]
    return pod(name, *apps, inits=inits)


async def test_the_api_servers_quota_and_ours_give_the_same_verdict(
    cluster: Admitting, minor: str, figures: dict[str, Any]
) -> None:
    """1,000 random pods, asked about in a namespace where only the API server judges and in one where only we do.

    Between the rounds a pod is bound in both, so that what is used grows.
    """
    chance = random.Random(5)
    await cluster.quota({f"requests.{name}": str(limit) for name, limit in _LIMITS.items()}, UNJUDGED)
    await cluster.quota({f"limits.{name}": str(limit) for name, limit in _LIMITS.items()}, JUDGED)
    await cluster.until_quota_is("nvidia.com/gpumem", hard=3600)
    asked, denied, used, at_once = 0, 0, 0, asyncio.Semaphore(8)

    async def compare(number: int) -> bool:
        made = _random_pod(chance, f"r{number}")
        async with at_once:
            theirs = await cluster.refusal(made, UNJUDGED, dry_run=True)
            ours = await cluster.refusal(made, JUDGED, dry_run=True)
        assert not theirs or "exceeded quota: gpus" in theirs, theirs
        assert not ours or "denied the request: exceeded quota judged/gpus" in ours, ours
        assert bool(theirs) == bool(ours), (made, theirs, ours)
        return bool(ours)

    for round_ in range(10):
        verdicts = await asyncio.gather(*(compare(round_ * 100 + number) for number in range(100)))
        asked, denied = asked + len(verdicts), denied + sum(verdicts)
        memory = chance.randint(100, 300)
        holder = pod(f"holder{round_}", container("a", asks(1, memory, 10)))
        await cluster.create(holder, UNJUDGED)
        await cluster.create(holder, JUDGED)
        meta = {"name": f"holder{round_}", "annotations": {ALLOCATION: rows([("GPU-n1-0", memory, 10)])}}
        target = {"kind": "Node", "name": "n1"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        await cluster.scheduler.send("POST", f"/api/v1/namespaces/{JUDGED}/pods/holder{round_}/binding", binding)
        used += memory
        await cluster.until_quota_is("nvidia.com/gpumem", used=used)
    assert asked == 1000
    # A test in which nearly all are admitted, or denied, would show little.
    assert 200 < denied < 800
    figures.setdefault(minor, {})["admission"] = {"asked": asked, "denied by both": denied}


# -- certificates and failures -----------------------------------------------------------------------------------------


async def test_a_renewed_certificate_loses_no_request(cluster: Admitting) -> None:
    """The API server goes on asking while the certificate and its authority are replaced three times."""
    stop, created = asyncio.Event(), 0

    async def ask() -> None:
        nonlocal created
        while not stop.is_set():
            await cluster.create(pod("p", container("a", asks(1, 5))), dry_run=True)
            created += 1

    asking = [asyncio.create_task(ask()) for _ in range(6)]
    for change, days in enumerate((400, 500, 600), 1):
        told_ = await cluster.renew("--days", str(days), "--renew-before-days", str(days - 10))
        assert told_["renewed"]
        async with asyncio.timeout(60):
            while f'gpu_extender_tls_reloads_total{{result="replaced"}} {change}.0' not in await _metrics(cluster):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            # The API server closes idle connections by itself; a new configuration makes it connect anew at once.
            enough = created + 20
            while created < enough:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.01)
    stop.set()
    # One that was refused raises here.
    await asyncio.gather(*asking)
    text = await _metrics(cluster)
    assert 'gpu_extender_tls_reloads_total{result="replaced"} 3.0' in text


async def test_while_the_extender_is_away_only_pods_that_concern_cards_wait(cluster: Admitting) -> None:
    await cluster.create(pod("before", container("a", asks(1, 5))))
    cluster.process.end()
    refusal = await cluster.refusal(pod("p", container("a", asks(1, 5))))
    assert 'failed calling webhook "mutate.gpu-extender.io"' in refusal
    await cluster.create(pod("plain", container("a")))
    path = f"/api/v1/namespaces/{JUDGED}/pods/before"
    await cluster.admin.send("PATCH", path, {"metadata": {"annotations": {"other": "1"}}})
    await cluster.admin.send("PATCH", f"{path}/status", {"status": {"message": "from a kubelet"}})
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "plain"}, "target": {"name": "n1"}}
    await cluster.admin.send("POST", f"/api/v1/namespaces/{JUDGED}/pods/plain/binding", binding)
    # The scheduler and the node plugin never wait.
    meta = {"name": "before", "annotations": {ALLOCATION: "GPU-n1-0,NVIDIA,5,0:;"}}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": {"name": "n1"}}
    await cluster.scheduler.send("POST", f"{path}/binding", binding)
    cluster.process.start()
    await asyncio.to_thread(cluster.process.wait_until, cluster.is_admitting, "admitting")
    assert await cluster.refusal(pod("p", container("a", asks(1, 5)))) == ""


async def _metrics(cluster: Admitting) -> str:
    async with cluster.extender.session.get("/metrics") as response:
        return await response.text()


async def test_the_account_of_certs_may_do_what_it_must_and_not_more(cluster: Admitting) -> None:
    manifest = ROOT / "manifests" / "install" / "base" / "certs.yaml"
    made = [each for each in yaml.safe_load_all(manifest.read_text()) if each["kind"] != "Deployment"]
    for each in made:
        cluster.plane.apply(each)
    secrets = {"resource": "secrets", "namespace": "kube-system"}
    webhooks = {"group": "admissionregistration.k8s.io", "name": "gpu-extender"}
    may = [
        secrets | {"verb": "create"},
        *(secrets | {"verb": verb, "name": "gpu-extender-webhook-tls"} for verb in ("get", "patch")),
        *(
            webhooks | {"verb": verb, "resource": f"{kind}webhookconfigurations"}
            for verb in ("get", "patch")
            for kind in ("mutating", "validating")
        ),
    ]
    may_not = [
        secrets | {"verb": "get", "name": "other"},
        secrets | {"verb": "list"},
        webhooks | {"verb": "patch", "resource": "validatingwebhookconfigurations", "name": "other"},
        {"resource": "pods", "verb": "list"},
    ]
    for expected, attributes in [*((True, each) for each in may), *((False, each) for each in may_not)]:
        user = "system:serviceaccount:kube-system:gpu-extender-certs"
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await cluster.admin.send("POST", path, review)
        assert answer["status"]["allowed"] is expected, attributes
