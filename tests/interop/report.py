"""Opens the HTML report in a real browser, headless, and looks at what it does there.

    python report.py path/to/baton [folder for screenshots]

Each page is opened narrow and wide, in light and in dark: it renders, says no error, asks for nothing but itself, is not wider than the
window, can be read (contrast), and the keyboard reaches each part. Names made to break out of a page are shown as text and make no element.
Needs chromium and its driver.
"""

import base64
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from selenium import webdriver
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.chrome.service import Service

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATON = pathlib.Path(sys.argv[1]).resolve()
SHOTS = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "target/screenshots")
WIDTHS = [400, 1280]

# What would act on a page that let it; by the name of the sample that it replaces.
HOSTILE = {
    "intake": "<script>document.title='broken'</script>",
    "claims": "\"><img src=https://x.example/i onerror=\"document.title='broken'\">",
    "payments": "</bdi></summary></details><h1 style='color:red'>oops</h1>",
    "get_policy": "' onmouseover='document.title=1' x='",
    "get_report": "</style><style>body{background:url(https://x.example/s)}",
    "claim-5521": "</title><iframe src=https://x.example/f></iframe>&lt;b&gt;",
    "mask-iban": "]]>--><svg onload=document.title='broken'>",
    "payout-needs-report": "W" * 500,
    "claims-desk": "javascript:document.title='broken'",
    "damage must be assessed": "\u202eabc\u0007 \u05d0\u05d1\u05d2 <a href=https://x.example/>link</a>",
}
ELEMENTS = set(
    "html head meta title style body header main section article footer nav h1 h2 h3 h4 p a ul li dl dt dd div small b code bdi data details summary "
    "table thead tbody tfoot tr th td br svg defs pattern marker rect path circle line text".split()
)

# Elements, handlers and links that no page may have; names of elements, since nothing else is to be allowed.
STRUCTURE = """
const out = {names: [], handlers: [], links: [], styles: 0};
for (const e of document.querySelectorAll('*')) {
  out.names.push(e.tagName.toLowerCase());
  for (const a of e.attributes) {
    if (a.name.startsWith('on')) out.handlers.push(a.name);
    if (['href', 'src', 'xlink:href', 'action'].includes(a.name)) out.links.push(a.value);
    if (a.name === 'style') out.styles += 1;
  }
}
out.names = [...new Set(out.names)];
return out;
"""

# Text whose contrast with what lies behind it is below 4.5.
CONTRAST = """
const parse = c => c.match(/[\\d.]+/g).map(Number);
const lum = c => {
  const [r, g, b] = c.slice(0, 3).map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = e => {
  for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c;
  }
  return [255, 255, 255];
};
const low = [];
let seen = 0;
for (const e of document.querySelectorAll('body *')) {
  if (e.localName === 'title') continue;
  if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
  const style = getComputedStyle(e);
  const color = parse(e instanceof SVGElement ? style.fill : style.color);
  const [a, b] = [lum(color), lum(behind(e))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  seen += 1;
  if (ratio < 4.5) low.push(e.tagName + '.' + e.getAttribute('class') + ' ' + ratio.toFixed(2) + ' ' + e.textContent.slice(0, 30));
}
return {seen, low: [...new Set(low)].slice(0, 5)};
"""

REACHED = "[...document.querySelectorAll('a[href], summary, [tabindex=\"0\"]')].filter(e => e.checkVisibility())"

wrong = []


def check(holds, page, what):
    if not holds:
        wrong.append(f"{page}: {what}")


def replaced(value):
    """The value with names of the sample replaced, also in JSON that is a string."""
    if isinstance(value, dict):
        return {k: replaced(v) for k, v in value.items()}
    if isinstance(value, list):
        return [replaced(v) for v in value]
    if not isinstance(value, str):
        return value
    if value[:1] in ("{", "["):
        return json.dumps(replaced(json.loads(value)))
    return HOSTILE.get(value, value)


def report(folder, name, *args):
    out = folder / f"{name}.html"
    subprocess.run([BATON, "eval", *args, "--format", "html", "-o", str(out)], cwd=ROOT, check=True)
    return out


def pages(folder):
    lines = (ROOT / "sample-traces/baton/claims-contract.otlp.json").read_text().splitlines()
    hostile = folder / "hostile.otlp.json"
    hostile.write_text("\n".join(json.dumps(replaced(json.loads(l))) for l in lines))
    empty = folder / "empty.otlp.json"
    empty.write_text("{}")
    return {
        "samples": report(folder, "samples", "sample-traces"),
        "hostile": report(folder, "hostile", str(hostile)),
        "empty": report(folder, "empty", str(empty)),
    }


def browser():
    options = webdriver.ChromeOptions()
    for a in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"]:
        options.add_argument(a)
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def opened(b, page, width, scheme):
    b.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", dict(width=width, height=900, deviceScaleFactor=1, mobile=False))
    b.execute_cdp_cmd("Emulation.setEmulatedMedia", dict(features=[dict(name="prefers-color-scheme", value=scheme)]))
    for kind in ["browser", "performance"]:
        b.get_log(kind)
    b.get(page.as_uri())


def requests(b):
    """Addresses that were asked for since the page was opened, and those of them that its policy stopped."""
    messages = [json.loads(e["message"])["message"] for e in b.get_log("performance")]
    of = lambda method: [m["params"] for m in messages if m["method"] == method]
    asked = {p["requestId"]: p["request"]["url"] for p in of("Network.requestWillBeSent")}
    stopped = [p["requestId"] for p in of("Network.loadingFailed") if p.get("blockedReason") == "csp"]
    return list(asked.values()), [asked[i] for i in stopped if i in asked]


def shot(b, name):
    size = b.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    clip = dict(x=0, y=0, width=size["width"], height=min(size["height"], 16000), scale=1)
    png = b.execute_cdp_cmd("Page.captureScreenshot", dict(format="png", captureBeyondViewport=True, clip=clip))["data"]
    (SHOTS / f"{name}.png").write_bytes(base64.b64decode(png))


def fits(b, page, what):
    wide, window = b.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    check(wide <= window, page, f"{what}: {wide} px wide in a window of {window} px")


def look(b, name, page):
    for width in WIDTHS:
        for scheme in ["light", "dark"]:
            label = f"{name}-{width}-{scheme}"
            opened(b, page, width, scheme)
            fits(b, label, "folded")
            shot(b, label)
            b.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
            fits(b, label, "unfolded")
            shot(b, f"{label}-open")
            contrast = b.execute_script(CONTRAST)
            check(contrast["seen"] > 5 and not contrast["low"], label, f"contrast {contrast}")
            style = b.execute_script("return getComputedStyle(document.body).backgroundColor")
            check(style == {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 22, 28)"}[scheme], label, f"background {style}")
            said = [e["message"] for e in b.get_log("browser")]
            check(not said, label, f"the console says {said}")
            urls, _ = requests(b)
            check(urls == [page.as_uri()], label, f"asked for {urls}")
            check(b.title == "Handoff report", label, f"the title is {b.title}")


def structure(b, name, page):
    opened(b, page, 1280, "light")
    s = b.execute_script(STRUCTURE)
    check(set(s["names"]) <= ELEMENTS, name, f"has elements {set(s['names']) - ELEMENTS}")
    check(not s["handlers"] and not s["styles"], name, f"has handlers {s['handlers']} and {s['styles']} style attributes")
    targets = {f"#{i}" for i in b.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id)")}
    check(set(s["links"]) <= targets, name, f"links to {set(s['links']) - targets}")


def keyboard(b, name, page):
    opened(b, page, 1280, "light")
    folded = b.execute_script("return document.querySelectorAll('details:not([open])').length")
    b.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    n = b.execute_script(f"window.parts = {REACHED}; return parts.length")
    order = []
    for _ in range(n):
        b.switch_to.active_element.send_keys(Keys.TAB)
        order.append(b.execute_script("return parts.indexOf(document.activeElement)"))
    check(order == list(range(n)) and n > 0, name, f"Tab goes to {order} of {n} parts")
    ring = b.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    check(ring == "solid", name, f"what the keyboard is at has the outline {ring}")
    if folded:
        opened(b, page, 1280, "light")
        b.execute_script("document.querySelector('summary').focus()")
        b.switch_to.active_element.send_keys(Keys.ENTER)
        check(b.execute_script("return document.querySelector('details').open"), name, "Enter does not unfold")
    return n


def policy(b, page):
    """A script or a style that got into the page after all would not count."""
    opened(b, page, 1280, "light")
    b.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.ran = true'; document.body.append(s);"
        "document.body.insertAdjacentHTML('beforeend', '<img src=https://x.example/i onerror=\"window.ran = true\"><p id=p style=\"color: red\">x</p>');"
    )
    b.execute_async_script("setTimeout(arguments[0], 500)")
    ran, color = b.execute_script("return [window.ran === true, getComputedStyle(document.getElementById('p')).color]")
    check(not ran, "policy", "a script ran")
    check(color != "rgb(255, 0, 0)", "policy", "a style attribute counted")
    asked, stopped = requests(b)
    refused = [e["message"] for e in b.get_log("browser")]
    check(all("Content Security Policy" in m for m in refused) and len(refused) >= 3, "policy", f"the console says {refused}")
    check(sorted(asked) == sorted([page.as_uri(), *stopped]) and stopped, "policy", f"asked for {asked}, of which {stopped} were stopped")


def hostile_names(b, page):
    opened(b, page, 1280, "light")
    b.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    text = b.execute_script("return document.body.textContent")
    for name in ["intake", "claims", "payments", "get_policy", "mask-iban", "claim-5521"]:
        shown = HOSTILE[name][:30]
        check(shown in text, "hostile", f"{shown} is not shown")
    check("\\u{202e}" in text and "\u202e" not in text, "hostile", "a mark that turns the text is not escaped")


def main():
    SHOTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = pages(pathlib.Path(folder))
        b = browser()
        try:
            parts = 0
            for name, page in made.items():
                look(b, name, page)
                structure(b, name, page)
                parts += keyboard(b, name, page)
            hostile_names(b, made["hostile"])
            policy(b, made["samples"])
        finally:
            b.quit()
    print("\n".join(wrong) or f"{len(made)} pages hold in Chromium, {parts} parts reached by keyboard; screenshots in {SHOTS}")
    sys.exit(bool(wrong))


main()
