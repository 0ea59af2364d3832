"""The JSON API: what the commands say with ``--json``, over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, FastAPI, File, Form, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from msgspec import Struct
from pydantic import BaseModel, Field, StringConstraints
from starlette.exceptions import HTTPException

from hcep import __version__
from hcep.errors import HCEPError
from hcep.explain import ExplainedImage
from hcep.explain.corrections import HASH, Correction
from hcep.explain.questions import changed
from hcep.explain.record import ContrastRecord, ImageRecord, record
from hcep.web.batching import Busy
from hcep.web.engine import Engine, Photo, PhotoNotFound, ReadOnly

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Id = Annotated[str, StringConstraints(pattern=f"^{HASH.pattern}$")]
Names = Annotated[list[Name], Form(max_length=32, description="concepts, by id, name or synonym")]
Coverage = Annotated[
    float | None, Form(gt=0.0, lt=1.0, description="for calibrated models: answer the lowest concept that is as sure")
]
_STATUS: dict[type[Exception], int] = {Busy: 503, PhotoNotFound: 404, ReadOnly: 409}
_REF = "#/components/schemas/{name}"


class Problem(Struct):
    """What is wrong with a request, in a sentence."""

    error: str


class Prediction(Struct):
    """A row of what `hcep predict` writes; with a coverage also the answer that is as sure."""

    id: str
    predicted: str
    probability: float
    path: list[str]
    names: list[str]
    coefficients: list[float]
    residual_norm: float
    answer: str | None = None
    answer_name: str | None = None
    answer_probability: float | None = None
    kind: str | None = None


class NewCorrection(BaseModel, extra="forbid"):
    """What somebody says of a photo: its class, or concepts that are right or wrong."""

    image: Id
    label: Name | None = Field(None, alias="class")
    force: list[Name] = Field([], max_length=32)
    forbid: list[Name] = Field([], max_length=32)
    file: str = Field("", max_length=200)
    who: str = Field("", max_length=200)
    why: str = Field("", max_length=2000)


@dataclass
class Given:
    """The photos of a request: files, or ids (the SHA-256 of their files) of photos that were given before."""

    photo: Annotated[list[UploadFile], File(description="image files")] = ()  # type: ignore[assignment]
    id: Annotated[list[Id], Form(max_length=32)] = ()  # type: ignore[assignment]

    async def photos(self, engine: Engine) -> list[Photo]:
        """Decoded and encoded, or remembered; an error of one is that of the request."""
        n, most = len(self.photo) + len(self.id), engine.limits.per_request
        if not 1 <= n <= most:
            raise HCEPError(f"give from 1 to {most} photos, as files (photo) or ids (id); these are {n}")
        known = [engine.photo(key) for key in self.id]
        files = [(await file.read(), file.filename or "") for file in self.photo]
        found = await asyncio.gather(*(engine.add_photo(*one) for one in files), return_exceptions=True)
        for (_, name), one in zip(files, found, strict=True):
            if isinstance(one, HCEPError) and not isinstance(one, Busy):
                raise HCEPError(f"{name[:100]}: {one}")
            if isinstance(one, BaseException):
                raise one
        return [*found, *known]  # type: ignore[list-item]


Photos = Annotated[Given, Depends()]


def register(app: FastAPI, engine: Engine, seen: Counter[str]) -> None:
    """Give an application the API, its description and a page about it.

    Parameters
    ----------
    app : FastAPI
    engine : Engine
    seen : what was asked so far, for the metrics
    """
    router = APIRouter(prefix="/api/v1")

    async def explained(given: Given, **options: Any) -> list[ExplainedImage]:
        photos = await given.photos(engine)
        return list(await asyncio.gather(*(engine.explain(photo, **options) for photo in photos)))

    @router.post("/explain", responses=_says(list[ImageRecord]))
    async def explain(
        given: Photos,
        force: Names = [],  # noqa: B006
        forbid: Names = [],  # noqa: B006
        why_not: Names = [],  # noqa: B006
        n_best: Annotated[int, Form(ge=1, le=100)] = 3,
        coverage: Coverage = None,
        objects: Annotated[str | None, Form(pattern="^(auto|[1-9])$", description="how many there may be")] = None,
    ) -> Response:
        """Class, probability and path of photos, as `hcep explain --json` says them."""
        n_paths: Any = int(objects) if objects and objects != "auto" else objects
        asked: dict[str, Any] = {"force": force, "forbid": forbid, "why_not": why_not, "n_best": n_best}
        found = await explained(given, **asked, coverage=coverage, n_paths=n_paths)
        return _json(await engine.run(lambda: [record(one) for one in found]))

    @router.post("/predict", responses=_says(list[Prediction]))
    async def predict(given: Photos, coverage: Coverage = None) -> Response:
        """Class and path of photos, as the rows that `hcep predict` writes."""
        photos = await given.photos(engine)
        found = await asyncio.gather(*(engine.explain(p, n_best=1, coverage=coverage) for p in photos))
        return _json([_prediction(photo.id, one) for photo, one in zip(photos, found, strict=True)])

    @router.post("/contrast", responses=_says(list[list[ContrastRecord]]))
    async def contrast(given: Photos, why_not: Annotated[list[Name], Form(min_length=1, max_length=32)]) -> Response:
        """Why each photo was not taken for other classes or concepts, as `hcep explain --why-not … --json` says it."""
        found = await explained(given, why_not=why_not)
        return _json(await engine.run(lambda: [record(one)["contrasts"] for one in found]))

    @router.post("/whatif", responses=_says(list[ImageRecord]))
    async def whatif(
        given: Photos,
        force: Names = [],  # noqa: B006
        forbid: Names = [],  # noqa: B006
        set: Annotated[list[Name], Form(max_length=32, description="new coefficients: dog=0, or dog*2")] = [],  # noqa: B006
    ) -> Response:
        """Photos with concepts forced, forbidden or changed, whatever corrections say; nothing is kept."""
        found = await explained(given, force=force, forbid=forbid, corrected=False)
        return _json(await engine.run(lambda: [record(changed(one, set) if set else one) for one in found]))

    @router.get("/corrections", responses=_says(list[Correction]))
    async def corrections() -> Response:
        """What people said of photos and what holds, the oldest first."""
        return _json(list(engine.corrections.standing.values()))

    @router.post("/corrections", status_code=201, responses=_says(Correction, 201))
    async def add_correction(new: NewCorrection) -> Response:
        """Say what is right or wrong about a photo; when this answers, it is on disk."""
        told = {"file": new.file, "who": new.who, "why": new.why}
        return _json(
            await engine.correct(new.image, label=new.label, force=new.force, forbid=new.forbid, **told), status=201
        )

    @router.delete("/corrections/{image}", status_code=204, responses=_says(None, 204))
    async def undo_correction(image: Id) -> Response:
        """Take the last correction of a photo back."""
        await engine.undo_correction(image)
        return Response(status_code=204)

    @router.get("/model", responses=_says(dict[str, Any]))
    async def model() -> Response:
        """The model, as `hcep info MODEL --json` says it, its changes, and what the server takes."""
        changes = [msgspec.to_builtins(change) for change in engine.saved.summary.training.history]
        more = {"read_only": engine.read_only, "changes": changes, "limits": engine.limits._asdict()}
        return _json({**engine.saved.summary.facts(), **more})

    @router.get("/hierarchy", responses=_says(dict[str, Any]))
    async def hierarchy() -> Response:
        """The concepts, in the JSON that `hcep hierarchy` reads and writes."""
        return Response(await engine.run(engine.hierarchy.to_json), media_type="application/json")

    @router.get("/health", responses=_says(dict[str, Any]))
    async def health() -> Response:
        """Whether the server answers; needs no token."""
        return _json({"status": "ok", "version": __version__})

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> str:
        """Counts in the text format of Prometheus."""
        kinds = {name: "counter" if name.endswith("_total") else "gauge" for name in engine.counts()}
        lines = [f"# TYPE hcep_{name} {kinds[name]}\nhcep_{name} {n}" for name, n in engine.counts().items()]
        lines.append("# TYPE hcep_requests_total counter")
        lines += [f'hcep_requests_total{{status="{status}"}} {n}' for status, n in sorted(seen.items())]
        return "\n".join(lines) + "\n"

    app.include_router(router)
    _describe(app)
    for kind in (HCEPError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _problem)


def _prediction(key: str, one: ExplainedImage) -> Prediction:
    steps, hedged = one.explanation.steps, one.hedged
    path, names = [step.synset for step in steps], [step.name for step in steps]
    numbers = [step.coefficient for step in steps], one.explanation.residual_norm
    more = () if hedged is None else (hedged.concept, hedged.name, hedged.probability, hedged.kind)
    return Prediction(key, one.label, one.probability, path, names, *numbers, *more)


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


async def _problem(_: Request, error: Exception) -> Response:
    """An error as a sentence; one of ours that is not about the request says nothing of the server."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][1:])) or "the body"
        return _json(Problem(f"{where}: {first['msg']}"), 422)
    if isinstance(error, HTTPException):
        return _json(Problem(str(error.detail)), error.status_code, dict(error.headers or {}))
    if isinstance(error, Busy):
        return _json(Problem(str(error)), 503, {"Retry-After": str(error.seconds)})
    if isinstance(error, HCEPError):
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 422)
        return _json(Problem(str(error)), status)
    return _json(Problem("this is a bug of the server; its log says more"), 500)


def _says(kind: Any, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """What an address answers, for its description: a kind of record, or a problem."""
    known = {400, 404, 409, 413, 422, 503}
    problem = {"content": {"application/json": {"schema": {"$ref": _REF.format(name="Problem")}}}}
    wrong = {code: {"description": _WORDS[code], **problem} for code in known}
    if kind is None:
        return {status: {"description": "done"}, **wrong}
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return {status: {"description": "the answer", "content": {"application/json": {"schema": schema}}}, **wrong}


_WORDS = {
    400: "a body that cannot be read",
    404: "no such photo or correction",
    409: "a model that cannot be changed",
    413: "more bytes than the server takes",
    422: "a photo that cannot be decoded, an unknown concept, a request that no path meets",
    503: "too many requests wait; Retry-After says when to come again",
}


def _describe(app: FastAPI) -> None:
    """Serve the description of the API, and a page that shows it with examples; nothing comes from elsewhere."""
    page: list[str] = []

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            kinds = [Problem, ImageRecord, ContrastRecord, Prediction, Correction]
            _, records = msgspec.json.schema_components(kinds, ref_template=_REF)
            made = get_openapi(title=app.title, version=__version__, routes=app.routes)
            made.setdefault("components", {}).setdefault("schemas", {}).update(records)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]

    @app.get("/api", include_in_schema=False)
    async def about(request: Request) -> HTMLResponse:
        if not page:
            page.append(_page(openapi()))
        return HTMLResponse(page[0].replace("BASE", escape(str(request.base_url).rstrip("/"))))


def _page(schema: dict[str, Any]) -> str:
    """The addresses, one after the other, with a command that asks each."""
    parts = []
    for path, methods in schema["paths"].items():
        for method, told in methods.items():
            sends = told.get("requestBody", {}).get("content", {})
            given = " -F photo=@photo.jpg" if "multipart/form-data" in sends else ""
            if path.endswith("/contrast"):
                given += " -F why_not=dog"
            if "application/json" in sends:
                example = {"image": "HASH", "class": "tabby", "why": "the stripes"}
                given = f" -H 'Content-Type: application/json' -d '{json.dumps(example)}'"
            verb = "" if method == "get" or "-F" in given else f" -X {method.upper()}"
            address = "BASE" + path.replace("{image}", "HASH")
            parts.append(
                f"<section><h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(told['description'])}</p>"
                f"<pre>curl{verb}{escape(given)} {address}</pre></section>"
            )
    return _PAGE.format(parts="".join(parts))


_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>HCEP API</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark"><style>
body{{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}}h2{{font-size:1.1rem}}
pre{{padding:.75rem;border:1px solid;border-radius:.5rem;overflow-x:auto}}</style></head><body>
<main><h1>HCEP API</h1><p><a href="/">Back to the explorer</a>. The same as
<a href="/openapi.json">OpenAPI</a>, for programs. HASH is the SHA-256 of the photo's file: <code>sha256sum
photo.jpg</code>.</p>{parts}</main></body></html>"""
