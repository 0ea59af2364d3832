"""The API against the command: the same answers, in the same form; and whatever is sent, the server does not fail."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
from hypothesis.errors import Unsatisfiable

pytestmark = pytest.mark.slow
httpx = pytest.importorskip("httpx", reason="httpx is not installed (extra test-web)")
HCEP = [sys.executable, "-c", "from hcep.cli import main; main()"]


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=server.url + "api/v1", timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def church(photos):
    return next(path for path in photos if "n03028079" in str(path))


def sent(*paths):
    return [("photo", (path.name, path.read_bytes(), "image/jpeg")) for path in paths]


def posted(client, where, *paths, **data):
    answer = client.post(where, files=sent(*paths), data=data)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_explain_equals_the_command(client, photos):
    chosen = photos[::100]
    command = subprocess.run(
        [*HCEP, "explain", *map(str, chosen), "--json"], capture_output=True, text=True, check=True
    )
    expected = json.loads(command.stdout)
    found = posted(client, "/explain", *chosen)
    assert [one["image"] for one in found] == [path.name for path in chosen]
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        assert [step["name"] for step in one["path"]] == [step["name"] for step in other["path"]]
        assert one["class"] == other["class"]
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-4)


def test_explain_follows_the_schema(client, church):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    from hcep.explain.answer import schema

    jsonschema.validate(posted(client, "/explain", church, why_not="cat", objects="2"), schema())


def test_a_photo_is_remembered_by_its_hash(client, church):
    first = posted(client, "/predict", church)[0]
    assert first["id"] == hashlib.sha256(church.read_bytes()).hexdigest()
    again = client.post("/predict", data={"id": first["id"]})
    assert again.json() == [first]
    assert client.post("/predict", data={"id": "0" * 64}).status_code == 404


def test_predict_returns_the_rows_of_the_command(client, church):
    row, one = posted(client, "/predict", church)[0], posted(client, "/explain", church)[0]
    names = ("answer", "answer_name", "answer_probability", "rank", "class", "class_probability", "doubt", "kind")
    assert [row[name] for name in names] == [one[name] for name in names]
    assert row["path"] == [step["synset"] for step in one["path"]]
    assert row["coefficients"] == pytest.approx([step["coefficient"] for step in one["path"]])


def test_contrast(client, church):
    (why,) = posted(client, "/contrast", church, why_not=["garbage truck"])[0]
    assert why["rival"]["name"] == "garbage truck"
    assert why["margin"] == pytest.approx(why["chosen"]["total"] - why["rival"]["total"], rel=1e-3, abs=1e-3)


def test_what_if_saves_nothing(client, church):
    before = posted(client, "/explain", church)[0]
    leaf = before["path"][-1]["synset"]
    other = posted(client, "/whatif", church, forbid=[leaf])[0]
    assert leaf not in [step["synset"] for step in other["path"]]
    assert other["forbid"] == [leaf]
    less = posted(client, "/whatif", church, set=[f"{leaf}=0"])[0]
    assert less["probability"] < before["probability"]
    assert posted(client, "/explain", church)[0] == before


def test_corrections_are_saved_applied_listed_and_undone(client, photos):
    photo = photos[5]
    key = hashlib.sha256(photo.read_bytes()).hexdigest()
    before = posted(client, "/explain", photo)[0]
    answer = client.post("/corrections", json={"image": key, "class": "tabby", "who": "Ada", "why": "stripes"})
    assert answer.status_code == 201
    said = answer.json()
    assert (said["image"], said["who"], said["why"]) == (key, "Ada", "stripes")
    assert said["when"]
    assert said in client.get("/corrections").json()
    found, whatif = (posted(client, where, photo)[0] for where in ("/explain", "/whatif"))
    assert (found["name"], found["corrected"]["who"], found["corrected"]["why"]) == ("tabby", "Ada", "stripes")
    assert (whatif["name"], whatif["corrected"], before["corrected"]) == (before["name"], None, None)
    assert client.delete(f"/corrections/{key}").status_code == 204
    assert client.get("/corrections").json() == []
    assert posted(client, "/explain", photo)[0] == before
    assert client.delete(f"/corrections/{key}").status_code == 404


@pytest.mark.parametrize(
    ("where", "data", "match"),
    [
        ("/explain", {"force": "no such concept"}, "no such concept"),
        ("/explain", {"force": "cat", "forbid": "animal"}, "cat"),
        ("/explain", {"sure": "90"}, "sure"),
        ("/explain", {"n_best": "0"}, "n_best"),
        ("/explain", {"objects": "many"}, "objects"),
        ("/contrast", {}, "why_not"),
        ("/whatif", {"set": "dog"}, "dog=0"),
    ],
)
def test_an_invalid_request_gets_an_error_in_one_sentence(client, church, where, data, match):
    answer = client.post(where, files=sent(church), data=data)
    assert answer.status_code == 422
    assert match in answer.json()["error"]


def test_a_request_without_photo_or_class_is_rejected(client):
    assert "from 1 to 32 photos" in client.post("/explain", data={}).json()["error"]
    assert client.post("/corrections", json={"image": "0" * 64}).json()["error"].startswith("the correction is empty")
    assert client.post("/corrections", json={"image": "../../etc/passwd", "class": "cat"}).status_code == 422
    assert client.post("/corrections", json={"image": "0" * 64, "class": "no such class"}).status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/explane", 404), ("POST", "/v2", 404), ("GET", "/explain", 405)]
)
def test_an_unknown_endpoint_is_answered_in_json(client, method, path, status):
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(f"there is no {method} /api/v1{path}; the page /api lists")


def test_one_bad_photo_among_good_ones_is_named(client, church):
    files = [*sent(church), ("photo", ("notes.txt", b"some words", "image/jpeg"))]
    answer = client.post("/explain", files=files)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("notes.txt: not an image")


def test_the_model_and_its_concepts(client):
    facts = client.get("/model").json()
    assert (facts["classes"], facts["read_only"], facts["changes"]) == (1000, True, [])
    from hcep import Hierarchy

    assert len(Hierarchy.from_json(client.get("/hierarchy").text)) > 1000


def test_metrics_count(client, church):
    def counts():
        lines = [line for line in client.get("/metrics").text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    before = counts()
    posted(client, "/predict", church)
    after = counts()
    assert after["hcep_explain_photos_total"] == before["hcep_explain_photos_total"] + 1
    assert after['hcep_requests_total{status="200"}'] >= before['hcep_requests_total{status="200"}'] + 2


def test_the_commands_in_the_documentation_work(server, church, photos, tmp_path):
    """Those of docs/explorer.md, as they are written but for the address."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    page = (Path(__file__).parents[2] / "docs/explorer.md").read_text("utf-8")
    block = next(part for part in page.split("```sh\n") if part.startswith("curl")).partition("```")[0]
    shutil.copy(church, tmp_path / "photo.jpg")
    shutil.copy(photos[0], tmp_path / "other.jpg")
    commands = block.replace("http://127.0.0.1:8080/", server.url).replace(
        "curl ", "curl --fail-with-body -sS -o /dev/null "
    )
    run = subprocess.run(["bash", "-ec", commands], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert commands.count("curl ") == 12


def test_the_api_page_lists_all_endpoints(server, page):
    page.goto(server.url + "api")
    assert page.locator("h2").count() == 11
    assert page.get_by_text("curl -F photo=@photo.jpg").count() == 4
    assert page.get_by_text("Fields: image, class, force, forbid").count() == 1


def test_whatever_is_sent_the_server_does_not_fail(server):
    """Requests that the description allows, and those that it does not: never a 5xx, and answers as described."""
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed (extra test-web)")
    from hypothesis import HealthCheck, Phase, given, settings

    checks, modes = schemathesis.checks, schemathesis.GenerationMode
    wanted = [checks.not_a_server_error, checks.response_schema_conformance, checks.content_type_conformance]
    schema = schemathesis.openapi.from_url(server.url + "openapi.json")
    options = {"deadline": None, "derandomize": True, "database": None, "phases": [Phase.generate]}
    seen = Counter()
    for found, mode in product(schema.get_all_operations(), (modes.POSITIVE, modes.NEGATIVE)):

        @settings(max_examples=15, suppress_health_check=list(HealthCheck), **options)
        @given(case=found.ok().as_strategy(generation_mode=mode))
        def asks(case):
            answer = case.call(timeout=30)
            seen[answer.status_code] += 1
            case.validate_response(answer, checks=wanted)

        with suppress(Unsatisfiable):  # nothing is wrong with an address without parameters
            asks()
    assert sum(seen.values()) > 100
    assert {200, 404, 422} <= seen.keys()
    assert server.process.poll() is None
