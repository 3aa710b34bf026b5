"""nbdata's panel in a browser tab, used as a user does."""

from __future__ import annotations

from playwright.sync_api import BrowserContext, FloatRect, Locator, Page, expect

from tests.lab import Lab
from tests.waiting import PATIENCE, wait_until

expect.set_options(timeout=PATIENCE * 1000)


def expect_focus(item: Locator) -> None:
    """Wait until `item` is the active element of its page.

    Playwright's `to_be_focused` also asks whether the window has the focus, which another window of the same
    browser can have.
    """

    def has_it() -> bool:
        item.page.wait_for_timeout(20)  # its events are handled meanwhile
        return bool(item.evaluate("item => item === document.activeElement"))

    wait_until(has_it, why=lambda: item.page.evaluate("document.activeElement?.outerHTML.slice(0, 300)"))


class Panel:
    """nbdata's panel in one tab; `errors` are the messages on the page's console."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("console", lambda m: self._note(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.root = page.locator("#nbdata-panel")

    @classmethod
    def open(cls, context: BrowserContext, lab: Lab, path: str = "lab") -> Panel:
        """Open a new tab with JupyterLab and the panel."""
        return cls.open_in(context.new_page(), lab, path)

    @classmethod
    def open_in(cls, page: Page, lab: Lab, path: str = "lab") -> Panel:
        """Open JupyterLab and the panel in a tab."""
        panel = cls(page)
        page.goto(f"{lab.url}/{path}?token={lab.token}&reset")
        # The launcher, or the notebook, takes the focus when it opens: a key pressed just before would go there.
        page.wait_for_function(
            "() => window.jupyterapp?.shell.currentWidget?.node.contains(document.activeElement)"
        )
        panel.show()
        return panel

    def show(self) -> None:
        """Wait for JupyterLab, and show the panel."""
        self.page.wait_for_function("() => window.jupyterapp?.commands?.hasCommand('nbdata:show')")
        self.page.evaluate("() => jupyterapp.restored.then(() => jupyterapp.commands.execute('nbdata:show'))")
        expect(self.root).to_be_visible()

    def job(self, job_id: str) -> Locator:
        """Return the card of a job."""
        return self.root.locator(f"[data-job='{job_id}']")

    def button(self, job_id: str, label: str) -> Locator:
        """Return a button of a job."""
        return self.job(job_id).get_by_role("button", name=label)

    def press(self, job_id: str, label: str) -> None:
        """Press a button of a job that was begun elsewhere, as those of the test itself, and accept what is asked."""
        self.button(job_id, label).click()
        self.page.get_by_role("dialog").get_by_role("button", name=label).click()

    def running(self, job_id: str) -> Locator:
        """Return the progress bar of an unfinished job."""
        return self.job(job_id).get_by_role("progressbar")

    def wait_for_growth(self, job_id: str) -> None:
        """Wait until the progress bar has advanced."""
        now = int(self.running(job_id).get_attribute("aria-valuenow") or 0)
        self.page.wait_for_function(
            """([id, now]) => {
                const job = document.querySelector(`#nbdata-panel [data-job="${id}"]`);
                const bar = job?.querySelector('[role=progressbar]');
                return job && (!bar || Number(bar.getAttribute('aria-valuenow')) > now);
            }""",
            arg=[job_id, now],
        )

    def theme(self, name: str) -> None:
        """Change Lab's theme, such as ``Light`` or ``Dark``, and wait until it shows."""
        self.page.evaluate(
            "theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", f"JupyterLab {name}"
        )
        self.page.wait_for_function(
            "name => document.body.dataset.jpThemeName === name",
            arg=f"JupyterLab {name}",
        )
        expect(self.page.locator("#jupyterlab-splash")).to_have_count(0)

    def width(self, pixels: int) -> None:
        """Drag the sidebar to this width; if JupyterLab does not allow it, set the panel's width alone."""
        if pixels < 250:
            narrow = f"width: {pixels}px !important; min-width: 0 !important"
            self.page.add_style_tag(content=f"#nbdata-panel {{ {narrow} }}")

        def drag() -> bool:
            if abs(self._box()["width"] - pixels) <= 8:
                return True
            box = self._box()
            left, middle = box["x"] - 3, box["y"] + box["height"] / 2
            self.page.mouse.move(left, middle)
            self.page.mouse.down()
            self.page.mouse.move(left + box["width"] - pixels, middle, steps=4)
            self.page.mouse.up()
            self.page.wait_for_timeout(100)
            return False

        wait_until(drag, why=lambda: f"the sidebar stays {self._box()['width']} wide")

    def _note(self, error: str) -> None:
        # JupyterLab's debugger says this if a notebook is closed while it asks the kernel.
        if not error.startswith("Could not restore the debugger state"):
            self.errors.append(error)

    def _box(self) -> FloatRect:
        box = self.root.bounding_box()
        assert box is not None
        return box
