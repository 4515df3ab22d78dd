"""The page in a real browser over a real server.

They exist because somebody on call acts on what it shows. They must not know how it is drawn beyond what a person or a
screen reader gets. Invariant: the page logs no error and asks no other host.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, expect

from accounting.holders import VmiKey
from tests.extender.dra import gpu, resource_claim, resource_slice, result
from tests.extender.objects import STEADY, asks, bound, card, container, node, phased, pod, quota
from tests.extender.raw_cluster import make_raw_cluster
from tests.extender.serving import Client, serving
from tests.extender.vmis import K, raw_node, raw_pod, units_of, vmi
from tests.page.browser import PATIENCE_SECONDS, Seen, looking_at, needs_chromium

# All of them in the loop of the browser.
pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]
expect.set_options(timeout=PATIENCE_SECONDS * 1000)

OBJECTS = [
    node("gpu-a", 2),
    node("gpu-b"),
    bound("holder", "gpu-a", "GPU-gpu-a-0", 900, cores=20),
    bound("lost", "gpu-b", "GPU-lost", 10, namespace="team"),
    pod("waits", [container("main", asks(2, 500))]),
    quota({"limits.nvidia.com/gpumem": "4000"}),
]


@asynccontextmanager
async def watching(browser: Browser, width: int = 1440, *, dark: bool = False) -> AsyncIterator[tuple[Client, Seen]]:
    async with serving(*OBJECTS) as client, looking_at(browser, client.url, width=width, dark=dark) as seen:
        await seen.until("document.documentElement.dataset.nodes", lambda count: count == "2")
        yield client, seen
        assert seen.errors == []
        assert seen.hosts == {client.url.split("/")[2]}


async def test_it_shows_sums_waiting_pods_and_what_would_have_to_change(browser: Browser) -> None:
    async with watching(browser) as (_, seen):
        await expect(seen.page.locator("header")).to_contain_text("2, 3")
        panel = seen.page.get_by_role("tabpanel")
        await expect(panel).to_contain_text("default/waits")
        await expect(panel).to_contain_text("main: 2 cards, 500 MiB each")
        await expect(panel).to_contain_text("1 node: too little memory")
        await expect(panel).to_contain_text("400 MiB missing on")
        await expect(panel.locator(".blocking")).to_contain_text("default/holder")
        await seen.page.get_by_role("tab", name="Quotas").click()
        await expect(panel).to_contain_text("gpumem")
        await expect(panel).to_contain_text("900 MiB / 3.9 GiB")


async def test_it_follows_what_changes(browser: Browser) -> None:
    async with watching(browser) as (client, seen):
        await client.delete("holder")
        panel = seen.page.get_by_role("tabpanel")
        await expect(panel).to_contain_text("fits 1 of 2 nodes")
        await client.delete("waits")
        await expect(panel).to_contain_text("No pod waits for cards.")
        await client.create(pod("another", [container("main", asks(1, 3000))]))
        await expect(panel).to_contain_text("no node would take it even with every pod gone")


async def test_a_card_opens_by_keyboard_and_closes_again(browser: Browser) -> None:
    async with watching(browser) as (_, seen):
        await seen.page.locator("#grid").focus()
        said = seen.page.locator("#focused")
        await expect(said).to_contain_text("gpu-a, card 0")
        await seen.press("ArrowRight")
        await expect(said).to_contain_text("gpu-a, card 1")
        await seen.press("ArrowDown", "ArrowRight")
        await expect(said).to_contain_text("gpu-b, card 1")
        await expect(said).to_contain_text("orphaned")
        await seen.press("Home", "ArrowLeft", "ArrowLeft", "Enter")
        panel = seen.page.get_by_role("tabpanel")
        await expect(panel).to_contain_text("default/holder")
        await expect(panel).to_contain_text("holds 900 MiB, 1 slot, 20 cores")
        await seen.press("Escape")
        await expect(seen.page.get_by_role("tab", name="Waiting")).to_have_attribute("aria-selected", "true")
        await expect(seen.page.locator("#grid")).to_be_focused()


async def test_an_open_card_shows_the_phases_and_follows_them(browser: Browser) -> None:
    async with serving(node("n1")) as client, looking_at(browser, client.url) as seen:
        await client.create(phased())
        await seen.until("document.documentElement.dataset.nodes", lambda count: count == "1")
        await seen.page.locator("#grid").focus()
        await expect(seen.page.locator("#focused")).to_contain_text("22 MiB of 1000 MiB")
        await seen.press("Enter")
        panel = seen.page.get_by_role("tabpanel")
        await expect(panel).to_contain_text("holds 22 MiB, 2 slots, 0 cores; after its inits 12 MiB")
        timeline = seen.page.locator(".timeline")
        await expect(timeline).to_have_attribute(
            "aria-label", re.compile("init .* 22 MiB, steady 12 MiB; held now 22 MiB")
        )
        await client.create(phased(STEADY), 200)
        await expect(panel).to_contain_text("holds 12 MiB")
        assert seen.errors == []


async def test_claims_and_vms_are_told_apart_from_pods(browser: Browser) -> None:
    claimed = node("n1", [card("GPU-a", memory=24576)])
    claimed["status"] = raw_node(units=4)["status"]
    claim = resource_claim("c", result("gpu-0"))
    claim["metadata"]["namespace"] = "ml"
    objects = claimed, resource_slice(gpu("gpu-0", "GPU-a")), claim
    cluster = make_raw_cluster(*objects, vmi("a", units=2, namespace="vms"), raw_pod("o", 1, node="n1"))
    async with serving(cluster=cluster) as client, looking_at(browser, client.url) as seen:
        await client.create(pod("waits", [container("main", units_of(2))]))
        await seen.until("document.documentElement.dataset.nodes", lambda count: count == "1")
        await expect(seen.page.locator("header")).to_contain_text("1 pod, 1 DRA claim, 1 VM")
        panel, said = seen.page.get_by_role("tabpanel"), seen.page.locator("#focused")
        await expect(panel).to_contain_text("1 device missing")
        await expect(panel).to_contain_text("held by VM vms/a")
        await expect(panel.locator(".blocking")).to_contain_text("default/o (1 device)")
        await seen.page.locator("#grid").focus()
        await expect(said).to_contain_text("apps 0 MiB, sidecars 0 MiB")
        await expect(said).to_contain_text("1 DRA claim 24 GiB")
        await seen.press("Enter")
        holders = panel.locator(".holder")
        await expect(holders).to_have_text(re.compile(r"DRA claim ml/c\s+holds 24 GiB, 10 slots"))
        await seen.press("Escape", "ArrowRight")
        await expect(said).to_contain_text("3 of 4 in use; pods 1, VMs 2, holds 0")
        await seen.press("Enter")
        await expect(panel.locator(".holder")).to_have_text(
            [re.compile("pod default/o"), re.compile(r"VM vms/a\s+2 devices")]
        )
        cluster.remove_vmi(VmiKey("vms", "a"))
        await expect(panel.locator(".holder")).to_have_text([re.compile("pod default/o")])
        for label, option in (("namespace", "ml"), ("model", K.rpartition("/")[2])):
            await seen.page.get_by_label(label).select_option(option)
            await expect(seen.page.locator(".shown")).to_have_text("1 of 1 nodes")
            await seen.page.get_by_label(label).select_option("")
        assert seen.errors == []


async def test_filters_leave_the_nodes_that_are_meant(browser: Browser) -> None:
    async with watching(browser) as (_, seen):
        shown = seen.page.locator(".shown")
        await expect(shown).to_have_text("2 of 2 nodes")
        await seen.press("/")
        await seen.page.keyboard.type("b")
        await expect(shown).to_have_text("1 of 2 nodes")
        await seen.page.locator("#search").fill("")
        for label, option in (("namespace", "team"), ("problem", "orphaned")):
            await seen.page.get_by_label(label).select_option(option)
            await expect(shown).to_have_text("1 of 2 nodes")
            await seen.page.get_by_label(label).select_option("")
        await seen.page.get_by_label("problem").select_option("unhealthy")
        await expect(shown).to_have_text("0 of 2 nodes")


async def test_it_fits_a_narrow_window_and_follows_the_dark_scheme(browser: Browser) -> None:
    async with watching(browser, 390, dark=True) as (_, seen):
        assert await seen.page.evaluate("document.documentElement.scrollWidth") <= 390
        ground = await seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert max(map(int, ground.removeprefix("rgb(").removesuffix(")").split(","))) < 80
