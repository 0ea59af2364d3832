"""Check a built site: local links lead somewhere, nothing is fetched from another host, pages stay light.

python docs/check_site.py site/
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Bytes of a page with its own pictures, scripts and styles.
MAX_WEIGHT = 2_000_000
#: Elements whose address the browser fetches by itself, and the attribute that holds it.
FETCHED = {"script": "src", "img": "src", "source": "src", "iframe": "src", "video": "src", "link": "href"}


class Page(HTMLParser):
    """The addresses and anchors of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "link" and not {"stylesheet", "icon", "preload"} & set(found.get("rel", "").split()):
            return
        if found.get(FETCHED.get(tag, "")):
            self.fetched.append(found[FETCHED[tag]])
        elif tag == "a" and found.get("href"):
            self.links.append(found["href"])


def problems(site: Path) -> list[str]:
    """A sentence for each thing that is wrong."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site}: no page"]
    for path, page in pages.items():
        name, weight = path.relative_to(site), path.stat().st_size
        for address in page.fetched:
            parts = urlsplit(address)
            if parts.scheme == "data":
                continue
            target = _local(site, path, parts.path)
            if parts.scheme or parts.netloc:
                found.append(f"{name}: fetches {address}")
            elif not target.is_file():
                found.append(f"{name}: {address} is missing")
            else:
                weight += target.stat().st_size
        for address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = _local(site, path, parts.path)
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                found.append(f"{name}: the link {address} leads nowhere")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors | {"top"}:
                found.append(f"{name}: no anchor {address}")
        if weight > MAX_WEIGHT:
            found.append(f"{name}: {weight / 1e6:.2f} MB, more than {MAX_WEIGHT / 1e6:.0f} MB")
    return found


def _local(site: Path, page: Path, address: str) -> Path:
    if not address:
        return page
    return (site / address.lstrip("/") if address.startswith("/") else page.parent / unquote(address)).resolve()


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]).resolve())
    print("\n".join(wrong) or "every link leads somewhere, nothing is fetched from elsewhere")
    sys.exit(bool(wrong))
