"""The section Loader services in a browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Locator, Page, expect

from nbdata.loaders.service import Client, serve
from tests.browser.panel import Panel
from tests.browser.test_looks import contrasts, overflow
from tests.lab import Lab
from tests.loaders.service.loaders import Numbers

pytestmark = [pytest.mark.long]


def test_services_are_shown_with_their_trainers_and_who_waits(
    context: BrowserContext, lab: Lab, shoot: Callable[[Page | Locator, str], None]
) -> None:
    panel = Panel.open(context, lab)
    section = panel.root.get_by_role("region", name="Loader services")
    expect(section).to_have_count(0)
    with serve(Numbers(200), name="images", ahead=4 * 41_000) as service:
        card = section.locator('[data-service="images"]')
        expect(card).to_contain_text("It waits for 1 trainer")
        with Client(service.address) as one, Client(service.address) as other:
            batches, others = iter(one), iter(other)
            for number in range(80):
                next(others if number % 4 == 3 else batches)
            expect(card).to_contain_text("of 200 batches")
            expect(card.get_by_role("meter")).to_have_attribute("aria-valuemax", "100")
            expect(card.get_by_role("list", name="trainers of images").get_by_role("listitem")).to_have_count(
                2
            )
            expect(card).to_contain_text("The loader waits for the trainers")
            for width in (250, 500):
                panel.width(width)
                assert overflow(panel) == []
                shoot(section, f"services-{width}")
            assert min(contrasts(panel).values()) >= 4.5
            found = Axe().run(panel.page, context="#nbdata-panel")
            assert found.violations_count == 0, found.generate_report()
    expect(section).to_have_count(0)


def _told(name: str, trainers: int, **fields: object) -> dict[str, object]:
    """Return what the server tells of a service with so many trainers, of which it names 32."""
    consumers = [
        {"name": f"trainer-{n}.cluster.local:{4000 + n}", "used": 1000 + n, "waits": n / 40}
        for n in range(32)
    ]
    return {
        "name": name, "process": 1, "listen": "ipc", "mode": "broadcast", "age": 7503, "epoch": 12, "used": 61_234,
        "of": 125_000, "rate": 104.2, "byte_rate": 1.1e9, "held": 0, "ahead": 0, "waits": 0.02, "count": trainers,
        "needed": 1, "consumers": consumers[:trainers], **fields,
    }  # fmt: skip


@pytest.mark.parametrize("theme", ["Dark", "Light"])
def test_many_services_and_trainers_take_little_room(
    context: BrowserContext, lab: Lab, shoot: Callable[[Page | Locator, str], None], theme: str
) -> None:
    long = "a-name-of-forty-characters-without-break"
    several = [_told("images", 40), _told("words", 3, of=-1, mode="share"), _told(long, 0, needed=8)]
    seen = {"root": str(lab.root), "disks": [], "caches": [], "mounts": []}
    seen["services"] = [*several, *(_told(f"more-{n:03}", 1) for n in range(250))]
    context.route("**/nbdata/api/disks*", lambda route: route.fulfill(json=seen))
    panel = Panel.open(context, lab)
    panel.theme(theme)
    section = panel.root.get_by_role("region", name="Loader services")
    trainers = section.get_by_role("list", name="trainers of images")
    expect(section.locator("[data-service]")).to_have_count(16)
    expect(section).to_contain_text("and 237 more")
    expect(trainers).to_be_hidden()
    for width in (250, 500):
        panel.width(width)
        assert overflow(panel) == []
        shoot(section, f"services-many-{theme}-{width}")
    section.get_by_text("Trainers (40)").click()
    expect(trainers.get_by_role("listitem")).to_have_count(33)
    expect(trainers).to_contain_text("and 8 more")
    assert overflow(panel) == []
    shoot(section, f"services-trainers-{theme}")
    assert min(contrasts(panel).values()) >= 4.5
    found = Axe().run(panel.page, context="#nbdata-panel")
    assert found.violations_count == 0, found.generate_report()
