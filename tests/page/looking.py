"""What a test asks a browser: contrasts, focus, width, what was loaded and complained of."""

from typing import Any

# WCAG 2.1, 1.4.3: relative luminance and contrast of every text node against what is painted below it
CONTRASTS = """
const numbers = (c) => c.match(/[\\d.]+/g).map(Number);
const rgb = (c) => { const m = numbers(c); return [m[0], m[1], m[2], m[3] === undefined ? 1 : m[3]]; };
const lum = ([r, g, b]) => [r, g, b].map(v => v / 255)
  .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
const over = (top, below) => [0, 1, 2].map(n => top[n] * top[3] + below[n] * (1 - top[3])).concat(1);
const paper = (e) => {
  let layers = [];
  for (let at = e; at; at = at.parentElement) layers.push(rgb(getComputedStyle(at).backgroundColor));
  return layers.reverse().reduce((below, top) => over(top, below), rgb(arguments[0]));
};
const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let count = 0;
while (walk.nextNode()) {
  const text = walk.currentNode.textContent.trim(), e = walk.currentNode.parentElement;
  if (!text || ["SCRIPT", "NOSCRIPT", "STYLE"].includes(e.tagName) || !e.checkVisibility()) continue;
  const style = getComputedStyle(e), svg = e.namespaceURI.endsWith("svg");
  const ink = over(rgb(svg ? style.fill : style.color), paper(e)), ground = paper(e);
  const [hi, lo] = [lum(ink), lum(ground)].sort((a, b) => b - a);
  const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
  const ratio = (hi + 0.05) / (lo + 0.05), least = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
  count += 1;
  if (ratio < least) found.push(`${ratio.toFixed(2)} < ${least}: ${text.slice(0, 40)}`);
}
return [count, found];
"""

UNREACHABLE = """
return [...document.querySelectorAll("a[href], button, input, summary, [tabindex]")]
  .filter(e => e.tabIndex >= 0 && e.checkVisibility() && !e.closest("details:not([open]) > :not(summary)"))
  .map(e => e.dataset.tab = e.dataset.tab || String(Math.random()));
"""


def contrasts(driver: Any, scheme: str) -> tuple[int, list[str]]:
    """How many texts there are, and those that are too faint, in the light or the dark."""
    media(driver, scheme=scheme)
    count, found = driver.execute_script(CONTRASTS, "rgb(255,255,255)" if scheme == "light" else "rgb(18,18,18)")
    return count, found


def media(driver: Any, *, scheme: str = "light", motion: str = "no-preference") -> None:
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": motion},
    ]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def size(driver: Any, width: int, height: int = 900) -> None:
    told = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", told)


def too_wide(driver: Any) -> list[str]:
    """What sticks out to the right of the screen, "" names where nothing does."""
    return list(
        driver.execute_script(
            "const w = document.documentElement.clientWidth;"
            "return document.documentElement.scrollWidth <= w ? [] : [...document.querySelectorAll('body *')]"
            ".filter(e => e.getBoundingClientRect().right > w + 1).map(e => e.outerHTML.slice(0, 80)).slice(0, 5)"
        )
    )


def complaints(driver: Any) -> list[str]:
    """What the browser's console says."""
    return [entry["message"] for entry in driver.get_log("browser")]


def asked_for(driver: Any) -> set[str]:
    """Addresses that were requested since the last time, but for those of the browser's own first page."""
    import json

    told = (json.loads(entry["message"])["message"] for entry in driver.get_log("performance"))
    urls = {one["params"]["request"]["url"] for one in told if one["method"] == "Network.requestWillBeSent"}
    return {url for url in urls if not url.startswith(("chrome:", "chrome-", "data:"))}  # slow machines log it late
