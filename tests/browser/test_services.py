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
