"""A headless Chromium that tests drive through its debugging pipe: no network, no further packages."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (apt-get install chromium)")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe", "--force-device-scale-factor=1",
         "--disable-background-networking", "--no-first-run", "--font-render-hinting=none")  # fmt: skip


class Browser:
    """One page in a browser: calls of the DevTools protocol, and what the page said meanwhile."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive, self._rest = send, receive, b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    session: str | None = None

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One call; its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def _read(self, patience: float = 60.0) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._receive], [], [], patience)
            assert ready, "the browser does not answer"
            self._rest += os.read(self._receive, 1 << 20)
        whole, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(whole))

    def open(self, path: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a file or an address and wait until it has loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=path if isinstance(path, str) else path.resolve().as_uri())
        deadline = time.monotonic() + 60
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            assert time.monotonic() < deadline, "the page does not load"
            self.events.append(self._read())

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors and warnings that the page caused."""
        self.run("1")
        found = [event for event in self.events if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
        said = [json.dumps(event["params"]) for event in found]
        consoles = [event for event in self.events if event["method"] == "Runtime.consoleAPICalled"]
        return said + [json.dumps(event["params"]) for event in consoles if event["params"]["type"] in ("error", "warning")]

    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        self.run("1")
        return [event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path: Path, *, whole: bool = False) -> Path:
        """A PNG of the window, or of the whole page."""
        more: dict[str, Any] = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            more = {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"]))
        return path

    def pdf(self) -> bytes:
        """The page in print."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A mouse event: ``mouseMoved``, ``mousePressed``, ``mouseReleased``, ``mouseWheel``."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, key: str, **more: Any) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **more)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser that ends with the block."""
    assert CHROMIUM is not None
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = shlex.join([CHROMIUM, *FLAGS, f"--user-data-dir={profile}"])
        pipes = f"exec {command} 3<&{to_read} 4>&{from_write} 2>/dev/null"
        process = subprocess.Popen(["bash", "-c", pipes], pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        try:
            yield Browser(to_write, from_read)
        finally:
            os.close(to_write)
            os.close(from_read)
            process.terminate()
            process.wait(timeout=30)
