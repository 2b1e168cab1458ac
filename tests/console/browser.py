"""Chromium, driven by Selenium: one for the tests of a file. What waits, waits for a condition."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selenium.webdriver.remote.webelement import WebElement

WAIT_SECONDS = 20
REQUIRED = os.environ.get("RADIATOR_INTEROP") == "require"  # a browser that is missing is a failure
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--disable-background-networking",
    "--no-first-run",
)


def why_missing() -> str:
    """Return why no browser can be driven here, or an empty text."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"no {program} here; `make clients` installs it"
    try:
        import selenium
    except ImportError:
        return "selenium is not installed; it is in the extra [dev]"
    return "" if selenium.__version__ else "selenium has no version"


def must_be_here() -> None:
    """Skip the test without a browser, or fail where one is required."""
    reason = why_missing()
    if reason:
        (pytest.fail if REQUIRED else pytest.skip)(reason)


class Browser:
    """A page of the console, as a user has it before them."""

    def __init__(self) -> None:
        must_be_here()
        from selenium.webdriver import Chrome, ChromeOptions
        from selenium.webdriver.chrome.service import Service

        options = ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for argument in ARGUMENTS:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
        self.window(1600, 1000)

    def close(self) -> None:
        self.driver.quit()

    def window(self, width: int, height: int, *, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, url: str) -> None:
        """Load a page anew, also if only its hash is another."""
        self.driver.get("about:blank")
        self.driver.get(url)

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until the condition is true, and return what it gave."""
        from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(self.driver, WAIT_SECONDS, 0.05, [StaleElementReferenceException])
        try:
            return wait.until(lambda _: condition())
        except TimeoutException:
            raise AssertionError(f"{what}; the page says:\n{self.text[:2000]}") from None

    def see(self, *texts: str) -> None:
        """Wait until the page shows all these texts."""
        self.until(lambda: all(text in self.text for text in texts), f"expected {texts}")

    @property
    def text(self) -> str:
        return str(self.driver.execute_script("return document.body.innerText"))

    def find(self, selector: str) -> WebElement:
        from selenium.webdriver.common.by import By

        return self.until(  # type: ignore[no-any-return]
            lambda: next(iter(self.driver.find_elements(By.CSS_SELECTOR, selector)), None), f"expected {selector}"
        )

    def count(self, selector: str) -> int:
        return int(self.driver.execute_script("return document.querySelectorAll(arguments[0]).length", selector))

    def button(self, text: str, within: str = "body") -> WebElement:
        """The button, or link, with this text."""
        from selenium.webdriver.common.by import By

        def found() -> WebElement | None:
            for each in self.driver.find_elements(By.CSS_SELECTOR, f"{within} button, {within} a, {within} summary"):
                if each.is_displayed() and each.text.strip() == text:
                    return each
            return None

        return self.until(found, f"expected the button {text!r}")  # type: ignore[no-any-return]

    def press(self, text: str, within: str = "body") -> None:
        from selenium.common.exceptions import StaleElementReferenceException

        def pressed() -> bool:
            try:
                self.button(text, within).click()
            except StaleElementReferenceException:
                return False
            return True

        self.until(pressed, f"expected to press {text!r}")

    def buttons(self, within: str = "main") -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText.trim())"
        return list(self.driver.execute_script(script, f"{within} button"))

    def type(self, label: str, text: str, within: str = "body") -> None:
        """Replace what is in the field with this label."""
        script = """
            for (const label of document.querySelectorAll(`${arguments[1]} label`)) {
              const name = label.querySelector("span") || label;
              if (name.innerText.trim() !== arguments[0]) continue;
              return label.querySelector("input, textarea, select");
            }
            return null;"""
        field = self.until(lambda: self.driver.execute_script(script, label, within), f"expected the field {label!r}")
        field.clear()
        field.send_keys(text)

    def log_in(self, url: str, user: str, passcode: str) -> None:
        self.open(url)
        self.type("Login", user)
        self.type("Passcode", passcode)
        self.press("Log in")

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.driver.execute_script("return document.documentElement.scrollWidth - innerWidth"))

    def faults(self) -> list[str]:
        """What the browser has logged as errors since the last call, except for lost connections."""
        found = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        return [text for text in found if "WebSocket connection to" not in text]

    def picture(self, path: os.PathLike[str]) -> None:
        self.driver.save_screenshot(os.fspath(path))
