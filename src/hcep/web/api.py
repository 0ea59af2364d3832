"""The JSON API: what the commands say with ``--json``, over HTTP."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, FastAPI, File, Form, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import PlainTextResponse, Response
from msgspec import Struct
from pydantic import BaseModel, Field, StringConstraints
from starlette.exceptions import HTTPException
from starlette.routing import Route

from hcep import __version__
from hcep.errors import HCEPError
from hcep.explain.answer import Answer, Contrast, describe
from hcep.explain.corrections import HASH, Correction
from hcep.explain.predictions import Prediction
from hcep.web.batching import ServerBusyError
from hcep.web.engine import Engine, Photo, PhotoNotFoundError, ReadOnlyModelError
from hcep.web.pages.frame import frame, text, ui

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Id = Annotated[str, StringConstraints(pattern=f"^{HASH.pattern}$")]
Names = Annotated[list[Name], Form(max_length=32, description="concepts, by id, name or synonym")]
Coverage = Annotated[
    float | None, Form(gt=0.0, lt=1.0, description="for calibrated models: answer the lowest concept that is as sure")
]
_STATUS: dict[type[Exception], int] = {ServerBusyError: 503, PhotoNotFoundError: 404, ReadOnlyModelError: 409}
_REF = "#/components/schemas/{name}"
#: In a shell.
_HASH = "$(sha256sum < photo.jpg | head -c 64)"
_WRONG = {
    400: "a body that cannot be read",
    404: "no such photo or correction",
    409: "a model that cannot be changed",
    413: "more bytes than the server takes",
    422: "a photo that cannot be decoded, an unknown concept, a request that no path meets",
    503: "too many requests wait; Retry-After says when to come again",
}


class Problem(Struct):
    """What is wrong with a request, in a sentence."""

    error: str


class NewCorrection(BaseModel):
    """What somebody says of a photo: its class, or concepts that are right or wrong."""

    model_config = {"extra": "forbid"}
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
            if isinstance(one, HCEPError) and not isinstance(one, ServerBusyError):
                raise HCEPError(f"{name[:100]}: {one}")
            if isinstance(one, BaseException):
                raise one
        return [*found, *known]  # type: ignore[list-item]


Photos = Annotated[Given, Depends()]


def register(app: FastAPI, engine: Engine, seen: Counter[str]) -> None:
    """Give an application the API, its description and a page about it; `seen` counts answers, for the metrics."""
    router = APIRouter(prefix="/api/v1")

    async def explained(given: Given, **options: Any) -> list[Answer]:
        photos = await given.photos(engine)
        return list(await asyncio.gather(*(engine.explain(photo, **options) for photo in photos)))

    @router.post("/explain", responses=_says(list[Answer]))
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
        return _json(found)

    @router.post("/predict", responses=_says(list[Prediction]))
    async def predict(given: Photos, coverage: Coverage = None) -> Response:
        """Class and path of photos, as the rows that `hcep predict` writes."""
        photos = await given.photos(engine)
        found = await asyncio.gather(*(engine.explain(p, n_best=1, coverage=coverage) for p in photos))
        return _json([Prediction.of(answer, photo.id) for photo, answer in zip(photos, found, strict=True)])

    @router.post("/contrast", responses=_says(list[list[Contrast]]))
    async def contrast(given: Photos, why_not: Annotated[list[Name], Form(min_length=1, max_length=32)]) -> Response:
        """Why each photo was not taken for other classes or concepts, as `hcep explain --why-not … --json` says it."""
        found = await explained(given, why_not=why_not)
        return _json([answer.contrasts for answer in found])

    @router.post("/whatif", responses=_says(list[Answer]))
    async def whatif(
        given: Photos,
        force: Names = [],  # noqa: B006
        forbid: Names = [],  # noqa: B006
        set: Annotated[list[Name], Form(max_length=32, description="new coefficients: dog=0, or dog*2")] = [],  # noqa: B006
    ) -> Response:
        """Photos with concepts forced, forbidden or changed, whatever corrections say; nothing is kept."""
        found = await explained(given, force=force, forbid=forbid, corrected=False)
        return _json(await engine.run(lambda: [one.with_coefficients(set) if set else one for one in found]))

    @router.get("/corrections", responses=_says(list[Correction]))
    async def corrections() -> Response:
        """What people said of photos and what holds, the oldest first."""
        return _json(list(engine.corrections.in_force.values()))

    @router.post("/corrections", status_code=201, responses=_says(Correction, 201))
    async def add_correction(new: NewCorrection) -> Response:
        """Say what is right or wrong about a photo; when this answers, it is on disk."""
        told = {"file": new.file, "who": new.who, "why": new.why}
        kept = await engine.correct(new.image, label=new.label, force=new.force, forbid=new.forbid, **told)
        return _json(kept, status=201)

    @router.delete("/corrections/{image}", status_code=204, responses=_says(None, 204))
    async def undo_correction(image: Id) -> Response:
        """Take the last correction of a photo back."""
        await engine.undo_correction(image)
        return Response(status_code=204)

    @router.get("/model", responses=_says(dict[str, Any]))
    async def model() -> Response:
        """The model, as `hcep info MODEL --json` says it, its changes, and what the server takes."""
        changes = [msgspec.to_builtins(change) for change in engine.saved.training.history]
        more = {"read_only": engine.read_only, "changes": changes, "limits": engine.limits._asdict()}
        return _json({**engine.saved.facts(), **more})

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
        lines = ["# TYPE hcep_requests_total counter"]
        lines += [f'hcep_requests_total{{status="{status}"}} {n}' for status, n in sorted(seen.items())]
        for name, n in engine.counts().items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines.append(f"# TYPE hcep_{name} {kind}\nhcep_{name} {n}")
        return "\n".join(lines) + "\n"

    app.include_router(router)

    @app.api_route("/api/{rest:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)
    async def nowhere(request: Request) -> Response:
        path, known = request.url.path, [route for route in router.routes if isinstance(route, Route)]
        status = 405 if any(route.path_regex.match(path) for route in known) else 404
        return _json(Problem(f"there is no {request.method} {path}; the page /api lists all addresses"), status)

    _describe(app)
    for kind in (HCEPError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _problem)


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
    if isinstance(error, HCEPError):
        later = {"Retry-After": str(error.seconds)} if isinstance(error, ServerBusyError) else None
        return _json(Problem(str(error)), _STATUS.get(type(error), 422), later)
    return _json(Problem("this is a bug of the server; its log says more"), 500)


def _says(kind: Any, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """What an address answers, for its description: a kind of record, or a problem."""

    def answer(schema: dict[str, Any], words: str) -> dict[str, Any]:
        return {"description": words, "content": {"application/json": {"schema": schema}}}

    problem = {"$ref": _REF.format(name="Problem")}
    said: dict[int | str, dict[str, Any]] = {code: answer(problem, words) for code, words in _WRONG.items()}
    if kind is None:
        return said | {status: {"description": "done"}}
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return said | {status: answer(schema, "the answer")}


def _describe(app: FastAPI) -> None:
    """Serve the description of the API, and a page that shows it with examples."""
    schema: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not schema:
            kinds = [Problem, Answer, Contrast, Prediction, Correction]
            _, records = msgspec.json.schema_components(kinds, ref_template=_REF)
            describe(records)
            schema.update(get_openapi(title=app.title, version=__version__, routes=app.routes))
            schema["components"]["schemas"].update(records)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]

    @ui.page("/api", title="API")
    def about(request: Request) -> None:
        with frame("API"):
            text("h1", "Ask it from a program")
            text("p", "Photos explained, questioned and corrected in JSON, as the commands print it.", "lead")
            text("a", "The description for programs (OpenAPI)", href="/openapi.json")
            for path, methods in openapi()["paths"].items():
                for method, told in methods.items():
                    with text("section", classes="card stack"):
                        text("h2", f"{method.upper()} {path}", "wrap")
                        text("p", told["description"].replace("`", ""))
                        for sent in told.get("requestBody", {}).get("content", {}).values():
                            record = schema["components"]["schemas"][sent["schema"]["$ref"].rpartition("/")[2]]
                            text("p", f"Takes {', '.join(record['properties'])}.", "soft")
                        command = _command(str(request.base_url)[:-1] + path, method, told)
                        text("pre", command, "small wrap").style("white-space: pre-wrap; margin: 0")


def _command(address: str, method: str, told: dict[str, Any]) -> str:
    """A command that asks an address."""
    sends, words = told.get("requestBody", {}).get("content", {}), ["curl"]
    if "multipart/form-data" in sends:
        words.append("-F photo=@photo.jpg" + (" -F why_not=dog" if address.endswith("contrast") else ""))
    elif "application/json" in sends:
        example = json.dumps({"image": f"'{_HASH}'", "class": "tabby"})
        words.append(f"-H 'Content-Type: application/json' -d '{example}'")
    elif method != "get":
        words.append(f"-X {method.upper()}")
    return " ".join([*words, address.replace("{image}", _HASH)])
