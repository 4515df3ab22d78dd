"""The webhook port: what it serves, and how its certificate changes while it serves."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest

import extender.security.tls
from extender.cluster.cluster import Cluster
from extender.config import ServerSettings, Settings
from extender.security.pki import Issued, issue
from extender.security.tls import POLL_SECONDS, CertificateCollector, Pair, ServingCertificate, TlsError
from extender.server.app import WEBHOOK_APP, make_app
from extender.server.ports import start
from tests.admission.reviews import limits, pod, review
from tests.extender.objects import container
from tests.virtual_time import eventually, passes

_BODY = json.dumps(review(pod(container("a", limits(memory="5"))))).encode()


class Port(NamedTuple):
    """A webhook port that is served, and where its files are."""

    url: str
    plain_url: str
    folder: Path
    certificate: ServingCertificate

    def client(self, *, force_close: bool = False, traces: Sequence[aiohttp.TraceConfig] = ()) -> aiohttp.ClientSession:
        """A client that trusts the authorities in the folder."""
        trust = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        connector = aiohttp.TCPConnector(ssl=trust, limit=0, force_close=force_close)
        return aiohttp.ClientSession(connector=connector, trace_configs=list(traces))


def make_pair(folder: Path, *, days: float = 1) -> Issued:
    """Make a new pair, whose authority is from now on trusted beside the present ones."""
    made = issue(("127.0.0.1", "localhost"), datetime.now(UTC), timedelta(days=days))
    ca = folder / "ca.crt"
    ca.write_bytes(made.ca + (ca.read_bytes() if ca.exists() else b""))
    return made


def write_pair(folder: Path, made: Issued | None = None, *, days: float = 1) -> None:
    """Put a pair into a folder, a new one by default."""
    made = made or make_pair(folder, days=days)
    for name, content in (("tls.crt", made.certificate), ("tls.key", made.key)):
        new = folder / f"{name}.new"
        new.write_bytes(content)
        new.rename(folder / name)


@asynccontextmanager
async def served(folder: Path, *, days: float = 1, poll_seconds: float = POLL_SECONDS) -> AsyncIterator[Port]:
    """Serve a webhook port with a new certificate, beside the plain port."""
    write_pair(folder, days=days)
    certificate = ServingCertificate(str(folder / "tls.crt"), str(folder / "tls.key"))
    settings = ServerSettings(port=0, webhook_port=0)
    app = make_app(Cluster(Settings()), settings, collectors=[CertificateCollector(certificate)])
    plain, plain_port = await start(app, settings)
    secure, port = await start(app[WEBHOOK_APP], settings, certificate.context)
    watching = asyncio.create_task(certificate.watch(poll_seconds))
    try:
        yield Port(f"https://127.0.0.1:{port}", f"http://127.0.0.1:{plain_port}", folder, certificate)
    finally:
        watching.cancel()
        await secure.cleanup()
        await plain.cleanup()


async def _metric(port: Port, name: str) -> float:
    async with aiohttp.ClientSession() as session, session.get(f"{port.plain_url}/metrics") as response:
        text = await response.text()
    (line,) = (line for line in text.splitlines() if line.startswith(name))
    return float(line.rpartition(" ")[2])


async def _until_reloaded(port: Port, times: int) -> None:
    await eventually(lambda: port.certificate.reloads == times)


_MUTATED = 'gpu_extender_admission_decisions_total{decision="allowed",dry_run="false",webhook="mutate",why="Mutated"}'


async def test_the_webhook_port_serves_the_webhooks_and_their_probes_only(tmp_path: Path) -> None:
    async with served(tmp_path) as port, port.client() as client:
        for path in ("/mutate", "/validate"):
            async with client.post(port.url + path, data=_BODY) as response:
                assert response.status == 200
                assert (await response.json())["response"]["uid"]
        for path in ("/livez", "/healthz", "/readyz"):
            async with client.get(port.url + path) as response:
                assert (response.status, await response.text()) == (200, "ok")
        for path in ("/bind", "/filter", "/scheduler/bind"):
            async with client.post(port.url + path, data=b"{}") as response:
                assert response.status == 404
        for path in ("/metrics", "/api/v1/pods", "/"):
            async with client.get(port.url + path) as response:
                assert response.status == 404


async def test_both_ports_count_in_the_same_metrics(tmp_path: Path) -> None:
    async with served(tmp_path) as port, port.client() as client:
        for url in (port.url, port.plain_url):
            async with client.post(f"{url}/mutate", data=_BODY) as response:
                assert response.status == 200
        assert await _metric(port, _MUTATED) == 2


async def test_the_server_name_does_not_matter(tmp_path: Path) -> None:
    """A client that knows only an address sends no name, others do; both get the newest certificate."""
    async with served(tmp_path) as port:
        write_pair(tmp_path)
        await _until_reloaded(port, 1)
        async with port.client() as client:
            for host in ("127.0.0.1", "localhost"):
                async with client.get(f"{port.url.replace('127.0.0.1', host)}/livez") as response:
                    assert response.status == 200


@pytest.mark.real_time
async def test_a_certificate_change_under_load_loses_no_request(tmp_path: Path) -> None:
    """20 clients send without pause, half of them over new connections, while the pair is replaced 5 times."""
    answered = 0
    async with served(tmp_path, poll_seconds=0.01) as port:
        stop = asyncio.Event()
        # The API server gets an authority before its certificate is served; see `certs`.
        pairs = [make_pair(tmp_path) for _ in range(5)]

        async def ask(keeps: bool) -> None:
            nonlocal answered
            while not stop.is_set():
                async with port.client(force_close=not keeps) as client:
                    for _ in range(10):
                        async with client.post(f"{port.url}/mutate", data=_BODY) as response:
                            assert response.status == 200
                            assert (await response.json())["response"]["allowed"]
                        answered += 1

        asking = [asyncio.create_task(ask(bool(number % 2))) for number in range(20)]
        for change, pair in enumerate(pairs, 1):
            write_pair(tmp_path, pair)
            await _until_reloaded(port, change)
            enough = answered + 40
            await eventually(lambda: answered >= enough)  # noqa: B023 - it is waited for here
        stop.set()
        # A request that failed raises here.
        await asyncio.gather(*asking)
        assert answered >= 200
        assert await _metric(port, 'gpu_extender_tls_reloads_total{result="replaced"}') == 5
        assert await _metric(port, _MUTATED) == answered


async def test_open_connections_stay_open_over_a_change(tmp_path: Path) -> None:
    opened = 0
    trace = aiohttp.TraceConfig()

    async def count(*_: object) -> None:
        nonlocal opened
        opened += 1

    trace.on_connection_create_end.append(count)
    async with served(tmp_path) as port, port.client(traces=[trace]) as client:
        for change in range(1, 4):
            async with client.post(f"{port.url}/mutate", data=_BODY) as response:
                await response.read()
            write_pair(tmp_path)
            await _until_reloaded(port, change)
    assert opened == 1


@pytest.mark.parametrize("broken", ["no certificate", "foreign key", "empty key", "expired", "gone"])
async def test_a_broken_new_pair_keeps_the_old_one_and_says_so(
    tmp_path: Path, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with served(tmp_path) as port:
        served_until = port.certificate.not_after
        match broken:
            case "no certificate":
                (tmp_path / "tls.crt").write_bytes(b"junk")
            case "foreign key":
                (tmp_path / "tls.key").write_bytes(issue(("x",), datetime.now(UTC), timedelta(1)).key)
            case "empty key":
                (tmp_path / "tls.key").write_bytes(b"")
            case "expired":
                write_pair(tmp_path, days=-0.001)
            case "gone":
                (tmp_path / "tls.key").unlink()
        await eventually(lambda: port.certificate.failures > 0)
        assert await _metric(port, 'gpu_extender_tls_reloads_total{result="failed"}') == 1
        assert await _metric(port, "gpu_extender_tls_stale") == 1
        assert await _metric(port, "gpu_extender_tls_not_after_timestamp_seconds") == served_until.timestamp()
        assert "new certificate cannot be used, the old one stays" in capsys.readouterr().out
        async with port.client() as client, client.get(f"{port.url}/livez") as response:
            assert response.status == 200
        # It is reported once per change, and the next good pair mends it.
        await passes(60)
        assert port.certificate.failures == 1
        write_pair(tmp_path)
        await _until_reloaded(port, 1)
        assert await _metric(port, "gpu_extender_tls_stale") == 0


async def test_a_certificate_that_has_expired_at_the_start_is_said_in_log_and_metric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with served(tmp_path, days=-0.001) as port:
        assert capsys.readouterr().out.count("certificate has expired") == 1
        assert await _metric(port, "gpu_extender_tls_stale") == 1
        write_pair(tmp_path)
        await _until_reloaded(port, 1)
        assert await _metric(port, "gpu_extender_tls_stale") == 0
        async with port.client() as client, client.get(f"{port.url}/readyz") as response:
            assert response.status == 200
        assert "certificate has expired" not in capsys.readouterr().out


async def test_a_certificate_that_expires_while_it_is_served_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pair(tmp_path)
    certificate = ServingCertificate(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    assert not certificate.is_stale
    watching = asyncio.create_task(certificate.watch())
    certificate._pair = certificate._pair._replace(not_after=datetime.now(UTC))
    await eventually(lambda: certificate._told_expired is not None)
    assert certificate.is_stale
    assert capsys.readouterr().out.count("certificate has expired") == 1
    watching.cancel()


async def test_a_pair_that_is_half_written_is_waited_for(tmp_path: Path) -> None:
    write_pair(tmp_path)
    certificate = ServingCertificate(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    made = issue(("localhost",), datetime.now(UTC), timedelta(1))
    (tmp_path / "tls.crt").write_bytes(made.certificate)
    assert not certificate.reload_if_changed()
    (tmp_path / "tls.key").write_bytes(made.key)
    assert certificate.reload_if_changed()
    assert (certificate.reloads, certificate.failures, certificate.is_stale) == (1, 0, False)


@pytest.mark.parametrize("late", ["tls.key", "tls.crt", "both"])
def test_a_pair_that_is_replaced_while_it_is_read_is_one_change(
    tmp_path: Path, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the new pair arrives between the check of the files and their reading."""
    write_pair(tmp_path)
    certificate = ServingCertificate(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    first, second = make_pair(tmp_path), make_pair(tmp_path)
    (tmp_path / ("tls.crt" if late == "tls.key" else "tls.key")).write_bytes(
        first.certificate if late == "tls.key" else first.key
    )
    reading = extender.security.tls.load_pair

    def interrupted(cert_file: str, key_file: str, client_ca_file: str | None = None) -> Pair:
        monkeypatch.setattr(extender.security.tls, "load_pair", reading)
        write_pair(tmp_path, second if late == "both" else first)
        return reading(cert_file, key_file, client_ca_file)

    monkeypatch.setattr(extender.security.tls, "load_pair", interrupted)
    assert [certificate.reload_if_changed() for _ in range(4)].count(True) == 1
    assert (certificate.reloads, certificate.failures, certificate.is_stale) == (1, 0, False)


def test_a_directory_that_is_swapped_by_a_link_is_noticed(tmp_path: Path) -> None:
    """Kubernetes replaces a mounted Secret by moving the link `..data` to another directory."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_pair(tmp_path / name)
    (tmp_path / "..data").symlink_to("one")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(Path("..data") / name)
    certificate = ServingCertificate(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    assert not certificate.reload_if_changed()
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(tmp_path / "..data")
    assert certificate.reload_if_changed()


@pytest.mark.parametrize(
    "cert, key, said",
    [
        (None, b"x", "tls.crt: No such file or directory"),
        (b"junk", b"x", "tls.crt: holds no PEM certificate"),
        (b"", None, "tls.crt: holds no PEM certificate"),
    ],
)
def test_a_broken_first_pair_is_an_error_that_names_the_file(
    tmp_path: Path, cert: bytes | None, key: bytes | None, said: str
) -> None:
    for name, content in (("tls.crt", cert), ("tls.key", key)):
        if content is not None:
            (tmp_path / name).write_bytes(content)
    with pytest.raises(TlsError, match=said):
        ServingCertificate(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
