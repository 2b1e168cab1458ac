"""Take the pictures of docs/console.md from a running ``make console``: ``python -m tests.console.pictures [URL]``.

Let the scene run for an hour before, so that the charts are full. Needs Chromium, Selenium and Pillow.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

from tests.console.browser import Browser

URL = "http://127.0.0.1:8161/console/"
TARGET = Path(__file__).parents[2] / "docs" / "pictures"
PICTURES = {  # name: hash, width, height, dark, texts to wait for
    "console-overview": ("overview", 1280, 760, False, ("The last hour", "messages")),
    "console-destination": ("destinations?name=/queue/delays", 1280, 640, False, ("Oldest in flight", "dead_letter")),
    "console-messages": ("messages?d=/topic/flights.JFK&from=last&value=30", 1280, 700, True, ("30 messages",)),
    "console-letters": ("letters?queue=/queue/delays.dead", 1280, 560, False, ("rejected", "/queue/delays")),
    "console-phone": ("clients?view=durable", 390, 780, True, ("group:billing", "group:dispatch")),
}


def main() -> None:
    """Take all pictures."""
    url = sys.argv[1] if len(sys.argv) > 1 else URL
    browser = Browser()
    try:
        for name, (place, width, height, dark, texts) in PICTURES.items():
            browser.window(width, height, dark=dark)
            browser.open(f"{url}#/{place}")
            browser.see(*texts)
            if name == "console-destination":
                browser.until(lambda: "–" not in browser.find(".tiles").text.split("Oldest")[0], "expected rates")
            if name == "console-messages":
                browser.find("button.row").click()
                browser.find("pre.body")
            path = TARGET / f"{name}.png"
            browser.picture(path)
            Image.open(path).convert("RGB").save(path, optimize=True)
            print(f"{path.name}: {path.stat().st_size // 1024} KiB")
    finally:
        browser.close()


if __name__ == "__main__":
    main()
