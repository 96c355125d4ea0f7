"""A headless Chromium under a reader's hands: real keys, a real mouse, a screen of any size, and what it asked for.

It is told what to do over two pipes, in the browser's own protocol (https://chromedevtools.github.io/devtools-protocol).
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import selectors
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.report.browser import CHROMIUM, need_chromium

PATIENCE = 60.0
FLAGS = (
    "--headless", "--font-render-hinting=none",
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND",
    "--hide-scrollbars",
)  # fmt: skip
KEYS = {"Backspace": 8, "Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
KEYS |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "7": 55}
TYPED = {"Enter": "\r", " ": " ", "7": "7"}
"""Keys that also type something, without which they press no button."""

DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))"
"""Waits until the page is drawn as it is now; before that, a click lands on what was there."""
UNSHADED = "document.querySelectorAll('.scroll').forEach((each) => { each.style.backgroundImage = 'none'; })"


class Browser:
    """A running browser with an empty profile below a folder, and its tabs by the name of their session."""

    def __init__(self, folder: Path) -> None:
        (read_commands, self.commands), (self.answers, write_answers) = os.pipe(), os.pipe()
        options = [*FLAGS, f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{read_commands} 4>&{write_answers}', "bash", str(CHROMIUM), *options],
            pass_fds=(read_commands, write_answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read_commands)
        os.close(write_answers)
        self.rest, self.last = b"", 0
        self.tabs: dict[str, Tab] = {}

    def tell(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send one command and return its answer; what happens meanwhile is noted by the tab where it does."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.heard()
            if answer.get("id") == self.last:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def heard(self) -> dict[str, Any]:
        """Return the next message of the browser."""
        end = time.monotonic() + PATIENCE
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.answers, selectors.EVENT_READ)
            while b"\0" not in self.rest:
                assert waiting.select(max(0.0, end - time.monotonic())), "the browser says nothing"
                piece = os.read(self.answers, 1 << 20)
                assert piece, "the browser has ended"
                self.rest += piece
        text, _, self.rest = self.rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        where = self.tabs.get(message.get("sessionId", ""))
        if where is not None:
            where.note(message.get("method", ""), message.get("params", {}))
        return message

    def end(self) -> None:
        """End it; it also ends by itself when this process does."""
        os.close(self.commands)
        os.close(self.answers)
        self.process.terminate()
        self.process.wait()


class Tab:
    """One tab with cookies and a memory of its own: what it says to the console, which addresses it asks for, and what
    is done in it."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.console: list[str] = []
        self.requests: list[str] = []
        self.loaded = False
        self.context = browser.tell("Target.createBrowserContext")["browserContextId"]
        target = browser.tell("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.tabs[self.session] = self
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.tell(f"{domain}.enable")

    def tell(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its answer, noting what happens meanwhile."""
        return self.browser.tell(method, self.session, **parameters)

    def close(self) -> None:
        """Forget the tab and all that it kept."""
        del self.browser.tabs[self.session]
        self.browser.tell("Target.disposeBrowserContext", browserContextId=self.context)

    def note(self, event: str, about: dict[str, Any]) -> None:
        if event in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.console.append(json.dumps(about))
        if event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        if event == "Page.loadEventFired":
            self.loaded = True

    def open(self, path: Path) -> None:
        """Open a file and wait until it has loaded."""
        self.tell("Page.navigate", url=path.absolute().as_uri())
        self.wait()

    def wait(self) -> None:
        """Wait until a page has loaded."""
        while not self.loaded:
            self.browser.heard()
        self.loaded = False

    def ask(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        told = self.tell("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            about = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
            text = {"text": TYPED[key]} if key in TYPED else {}
            self.tell("Input.dispatchKeyEvent", type="keyDown", **about, **text)
            self.tell("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.tell("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click on the middle of the first element that matches, scrolled into view."""
        middle = self.ask(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
            " found.scrollIntoView({block: 'center', behavior: 'instant'}); const box = found.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        self.ask(DRAWN)
        where = {"x": middle[0], "y": middle[1], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.tell("Input.dispatchMouseEvent", type=kind, **where)

    def screen(self, width: int, height: int = 800, scheme: str = "light", media: str = "") -> None:
        """Have a screen so many pixels wide, light or dark, or be paper (`media="print"`)."""
        self.tell(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.tell("Emulation.setEmulatedMedia", media=media, features=features)
        self.ask(DRAWN)

    def overflow(self, selector: str = "html") -> int:
        """Return by how many pixels the page is wider than the screen, or what an element holds than the element."""
        widths = "(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)"
        return int(self.ask(f"{widths}(document.querySelector({json.dumps(selector)}))"))

    def violations(self) -> list[list[str]]:
        """Return all violations that axe-core finds, slight ones too: how bad, which rule, where.

        It judges no contrast on a background that changes, so the shades at the edges of tables are taken away.
        """
        package = importlib.util.find_spec("axe_core_python")
        if package is None or package.origin is None:
            pytest.skip("axe-core-python is not installed")
        axe = Path(package.origin).with_name("axe.min.js").read_text(encoding="utf-8")
        self.ask(f"{axe}\n0")
        self.ask(UNSHADED)
        found: list[list[str]] = self.ask(
            "axe.run().then((told) => told.violations.map((each) => [each.impact, each.id, each.nodes[0].html]))"
        )
        return found

    def photograph(self, path: Path, whole: bool = True) -> None:
        """Take a picture of the page, or of what the screen shows of it."""
        taken = self.tell("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))


RUNNING: list[Browser] = []
"""The browser of this process, once a test has asked for one: it starts in half a second of a processor's time."""


@contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """Open a tab in the browser of this process, which starts with a profile below the folder if there is none."""
    need_chromium()
    if not RUNNING:
        RUNNING.append(Browser(folder))
    try:
        opened = Tab(RUNNING[0])
        yield opened
        opened.close()
    except BaseException:  # what a test left halfway is nobody else's
        end()
        raise


def end() -> None:
    """End the browser of this process, if there is one."""
    while RUNNING:
        RUNNING.pop().end()


class Visit(NamedTuple):
    """What a visit found: the script's answer, and what the browser wrote to its console."""

    answer: Any
    console: list[str]


def visit(page: str, script: str, folder: Path) -> Visit:
    """Open a page, run the body of an asynchronous function after its own scripts, and return what that returns."""
    (folder / "page.html").write_text(page, encoding="utf-8")
    with tab(folder) as opened:
        opened.open(folder / "page.html")
        return Visit(opened.ask(f"(async () => {{ {script} }})()"), opened.console)
