"""The panel in a browser tab, as a user meets it."""

from __future__ import annotations

from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.lab import Lab

# Everything that the tests wait for comes within a second on an idle machine.
PATIENCE = 30_000

expect.set_options(timeout=PATIENCE)


class Panel:
    """The nbdata panel of one tab; `errors` are what the page put on its console."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.root = page.locator("#nbdata-panel")

    @classmethod
    def open(cls, context: BrowserContext, lab: Lab, path: str = "lab") -> Panel:
        """A new tab with Lab and the panel in it."""
        panel = cls(context.new_page())
        panel.page.goto(f"{lab.url}/{path}?token={lab.token}&reset")
        panel.show()
        return panel

    def show(self) -> None:
        """Wait for Lab, and bring the panel to the front."""
        self.page.wait_for_function("() => window.jupyterapp?.commands?.hasCommand('nbdata:show')")
        self.page.evaluate("() => jupyterapp.restored.then(() => jupyterapp.commands.execute('nbdata:show'))")
        expect(self.root).to_be_visible()

    def job(self, job_id: str) -> Locator:
        """The card of a job."""
        return self.root.locator(f"[data-job='{job_id}']")

    def button(self, job_id: str, label: str) -> Locator:
        """One of a job's buttons."""
        return self.job(job_id).get_by_role("button", name=label)

    def width(self, pixels: int) -> None:
        """Make the sidebar that wide."""
        self.page.evaluate(
            """width => {
                const split = document.querySelector('#jp-right-stack').closest('.lm-SplitPanel');
                const widget = jupyterapp.shell._hsplitPanel;
                const sizes = widget.relativeSizes(), all = widget.node.clientWidth;
                const last = sizes.length - 1, want = width / all;
                const rest = sizes.slice(0, last).reduce((a, b) => a + b, 0);
                widget.setRelativeSizes([...sizes.slice(0, last).map(s => s * (1 - want) / rest), want]);
            }""",
            pixels,
        )
