"""The report is one safe, self-contained document."""

from html.parser import HTMLParser

from hcep.explain import Explanation, Step
from hcep.explain.report import Card, Section, report

EXPLANATION = Explanation(
    root="thing",
    steps=(Step("a", "<animal>", ("living thing",), 0.9, 0.5), Step("c", "cat", (), -4.0, 0.9)),
    residual_norm=0.1,
    runners_up=(),
)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.opened.append((tag, dict(attrs)))


def made() -> str:
    card = Card("a <b>cat</b>", "x/cat.jpg", "✓ cat", True, EXPLANATION, note="1 < 2")
    table = [{"method": "ours", "accuracy": "1.0"}, {"method": "peer & co", "accuracy": "0.5"}]
    return report("Title", "Text", table, "ours", [Section("Images", "Some", [card])])


def test_every_text_is_escaped():
    html = made()
    assert "&lt;animal&gt;" in html
    assert "a &lt;b&gt;cat&lt;/b&gt;" in html
    assert "peer &amp; co" in html
    assert "1 &lt; 2" in html
    assert "<animal>" not in html


def test_nothing_is_loaded_or_run():
    tags = Tags()
    tags.feed(made())
    assert not {tag for tag, _ in tags.opened} & {"script", "link", "img", "iframe"}
    assert not [attrs for _, attrs in tags.opened if "src" in attrs or "href" in attrs]


def test_bars_are_drawn_to_scale_and_clipped():
    html = made()
    assert "left:50.0%;width:15.0%" in html  # 0.9 of 3, on half a track
    assert "left:0.0%;width:50.0%" in html  # -4 is beyond the edge
    assert html.count("class=minus") == 1


def test_the_highlighted_row_is_marked():
    assert "<tr class=ours><td>ours</td>" in made()
