"""The pages in a browser: they load, filter, link, fit a phone, and can be read without sight or script."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tinygpt.report.audit.page import CLASSES
from tinygpt.report.audit.page import as_page as audit_page
from tinygpt.report.audit.sheet import sheet
from tinygpt.report.audit.text import ORDER
from tinygpt.report.matrix.cells import UNKNOWN, Cell, Column, Matrix, Rule
from tinygpt.report.matrix.page import as_page

AUDITS = json.loads(Path(__file__).with_name("files").joinpath("audits.json").read_text())

RULES = [
    Rule("G1", "required", "parameters"),
    Rule("G9 (o)", "optional", "higher derivatives"),
    Rule("M1", "required", "s"),
]
COLUMNS = [Column(f"0.{minor}.0", "cpu") for minor in range(40, 25, -1)]
VERDICTS = ("pass", "fail", "xfail", "not_applicable", UNKNOWN)
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}


def example():
    """Return a matrix with cells of several verdicts, and more columns than a phone shows."""
    cells = {
        (subject, rule.name, column): Cell(VERDICTS[(row + place) % len(VERDICTS)], f"{column.release}.json", "a note")
        for subject in ("tinygpt", "mlx.nn")
        for row, rule in enumerate(RULES)
        for place, column in enumerate(COLUMNS)
    }
    return Matrix(["tinygpt", "mlx.nn"], RULES, COLUMNS, cells)


@pytest.fixture(scope="module")
def browser():
    """Start headless Chromium."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("no Chromium with its driver: .ci/chromium installs Debian's")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()


@pytest.fixture
def opened(browser, tmp_path):
    """Return what opens a page in the browser, at the width of a desk."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").mkdir()
    for column in COLUMNS:
        (tmp_path / "results" / f"{column.release}.json").write_text("{}")

    def open_page(text):
        path = tmp_path / "docs" / "page.html"
        path.write_text(text)
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        browser.set_window_size(1400, 1000)
        browser.get(path.as_uri())
        return browser

    yield open_page
    assert browser.get_log("browser") == []


@pytest.fixture
def page(opened):
    """Return the browser with the matrix in it."""
    return opened(as_page(example(), "../results/"))


def shown(page):
    """Count the verdicts that can be seen and are not faded, by subject."""
    cells = page.execute_script(
        "return [...document.querySelectorAll('td[data-verdict]')].filter(c => c.offsetParent &&"
        " !c.classList.contains('faded')).map(c => [c.closest('section').dataset.subject, c.dataset.verdict])"
    )
    return Counter(map(tuple, cells))


def choose(page, name, value):
    """Choose a value of a filter."""
    page.execute_script(
        "const s = document.querySelector(`[name=${arguments[0]}]`); s.value = arguments[1];"
        "s.dispatchEvent(new Event('change', { bubbles: true }))",
        name,
        value,
    )


def test_page_shows_everything_at_first(page):
    """Two subjects, three rules, fifteen releases; the line of status counts them."""
    assert sum(shown(page).values()) == 2 * 3 * 15
    assert page.find_element("id", "shown").text == "90 verdicts shown"


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"subject": "mlx.nn"}, {"mlx.nn": 45}),
        ({"level": "optional"}, {"mlx.nn": 15, "tinygpt": 15}),
        ({"verdict": "fail"}, {"mlx.nn": 9, "tinygpt": 9}),
        ({"subject": "tinygpt", "level": "required", "verdict": "unknown"}, {"tinygpt": 6}),
    ],
    ids=str,
)
def test_filters_leave_what_was_asked_for(page, filters, expected):
    """Each filter, and all together; undone, everything is back."""
    for name, value in filters.items():
        choose(page, name, value)

    found = Counter()
    for (subject, _), count in shown(page).items():
        found[subject] += count
    assert found == expected
    assert page.find_element("id", "shown").text == f"{sum(expected.values())} verdicts shown"

    for name in filters:
        choose(page, name, "")
    assert sum(shown(page).values()) == 90


def test_cells_link_to_their_evidence(page):
    """The link of a cell opens the report of its release."""
    link = page.find_element("css selector", "section:last-of-type tbody tr:last-child td:last-child a")

    link.click()

    assert page.current_url.endswith("/results/0.26.0.json")
    page.get_log("browser")  # what the browser itself says about showing JSON


def test_page_fits_a_phone(page):
    """Nothing is wider than the screen: tables scroll by themselves, and the rule stays in sight."""
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    page.refresh()

    wide, scrolls = page.execute_script(
        "const s = document.querySelector('.scroll'); s.scrollLeft = 200;"
        "return [document.documentElement.scrollWidth, s.scrollWidth > s.clientWidth]"
    )
    head = page.find_element("css selector", "tbody th").rect

    assert wide <= PHONE["width"]
    assert scrolls
    assert 0 <= head["x"] < 50


def test_page_is_whole_without_script(page):
    """Every verdict is there, and no filter that would not work."""
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.refresh()
        cells = [cell for cell in page.find_elements("css selector", "td[data-verdict]") if cell.is_displayed()]
        form = page.find_element("id", "filter").is_displayed()
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})

    assert len(cells) == 90
    assert not form


ACCESSIBLE = """
const problems = [];
const need = (good, what) => { if (!good) problems.push(what); };
need(document.documentElement.lang, "no language");
need(document.title, "no title");
need(document.querySelectorAll("h1").length === 1, "not one h1");
need(document.querySelector("main"), "no main");
let level = 0;
for (const h of document.querySelectorAll("h1, h2, h3")) {
  need(+h.tagName[1] <= level + 1, `heading skips to ${h.tagName}`);
  level = +h.tagName[1];
}
for (const s of document.querySelectorAll("select")) need(s.labels.length, `select ${s.name} without label`);
for (const t of document.querySelectorAll("th")) need(t.scope, `th ${t.textContent} without scope`);
for (const a of document.querySelectorAll("a")) need(a.innerText.trim(), "link without a name");
for (const r of document.querySelectorAll(".scroll")) need(r.tabIndex === 0 && r.ariaLabel, "region not reachable");
const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
need(new Set(ids).size === ids.length, "an id twice");
const light = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255)
  .map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4); return 0.2126*v[0] + 0.7152*v[1] + 0.0722*v[2]; };
const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
  if (!c.endsWith(", 0)")) return c; } return "rgb(255, 255, 255)"; };
for (const e of document.querySelectorAll("h1, h2, p, th, small, a, li, label, .sign")) {
  const [one, two] = [getComputedStyle(e).color, behind(e)].map(light).sort((a, b) => b - a);
  need((one + 0.05) / (two + 0.05) >= 4.5, `contrast of ${e.tagName}.${e.className}`);
}
return [...new Set(problems)];
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_can_be_read_by_everybody(page, scheme):
    """Language, title, headings, labels, scopes, names of links, and contrast, in light and in dark."""
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    page.refresh()

    assert page.execute_script(ACCESSIBLE) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_audit_can_be_read_by_everybody(opened, scheme):
    """It is the same frame around other tables: two wrappers, every verdict."""
    page = opened(audit_page(sheet(AUDITS), "../results/"))
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    page.refresh()

    assert page.execute_script(ACCESSIBLE) == []
    assert set(shown(page)) == {("mlx-lm", CLASSES[verdict]) for verdict in ORDER} | {("tinygpt", "pass")}


def test_audit_is_filtered(opened):
    """By wrapper and by verdict, and a phone shows it."""
    page = opened(audit_page(sheet(AUDITS), "../results/"))

    choose(page, "verdict", "fail")
    assert shown(page) == {("mlx-lm", "fail"): 3}
    choose(page, "subject", "tinygpt")
    assert shown(page) == {}

    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    page.refresh()
    assert page.execute_script("return document.documentElement.scrollWidth") <= PHONE["width"]


def test_fault_of_accessibility_is_found(page):
    """The fault that the check is for: a table head without scope, a label that is gone, grey on white."""
    page.execute_script(
        "document.querySelector('th').removeAttribute('scope');"
        "document.querySelector('select').parentElement.replaceWith(document.querySelector('select'));"
        "document.querySelector('h2').style.color = '#bbb'"
    )

    found = page.execute_script(ACCESSIBLE)

    assert [problem.split()[0] for problem in found] == ["select", "th", "contrast"]
