"""A headless Chromium that sees only this machine."""

from __future__ import annotations

import base64
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

# Errors in the browser's console that are known, and why they do not matter: a part of the text, and the reason.
KNOWN: dict[str, str] = {}

LOCAL = {"127.0.0.1", "localhost", "[::1]", "::1"}


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test says what failed, not what was read."""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Files of a folder at an address of this machine. Modules and icons are not read from `file:`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def chromium() -> Iterator[Any]:
    """The system's browser and driver; nothing is fetched for it."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not browser or not driver:
        raise SystemExit("chromium and chromedriver are needed")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for switch in (
        "headless=new",
        "no-sandbox",
        "disable-dev-shm-usage",
        "disable-gpu",
        "hide-scrollbars",
        "force-color-profile=srgb",
        "no-first-run",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
        # Whatever asks for another host finds none.
        "host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    ):
        options.add_argument(f"--{switch}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    window = webdriver.Chrome(options=options, service=Service(driver))
    window.set_page_load_timeout(60)
    window.set_script_timeout(60)
    try:
        yield window
    finally:
        window.quit()


def problems(window: Any) -> list[str]:
    """What the console complains about, and what was asked of other hosts, since the last call."""
    out = []
    for line in window.get_log("browser"):
        if line["level"] == "SEVERE" and not any(k in line["message"] for k in KNOWN):
            out.append(f"console: {line['message'][:300]}")
    for line in window.get_log("performance"):
        message = json.loads(line["message"])["message"]
        if message["method"] not in {"Network.requestWillBeSent", "Network.webSocketCreated"}:
            continue
        params = message["params"]
        url = params.get("url") or params["request"]["url"]
        parts = urlsplit(url)
        if parts.scheme not in {"data", "blob", "file"} and parts.hostname not in LOCAL:
            out.append(f"asks another host: {url[:200]}")
    return list(dict.fromkeys(out))


def size(window: Any, width: int, height: int, scale: float) -> None:
    """The window's inside. It is as high as the page, so that all of it is drawn."""
    window.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False},
    )


def shoot(window: Any, file: Path) -> None:
    """All of the page as a PNG."""
    png = window.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    file.write_bytes(base64.b64decode(png["data"]))
