"""The JSON API: the JSON output of the commands over HTTP."""

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
from hcep._files import not_writable
from hcep.classify.right_level import SURE
from hcep.errors import HCEPError
from hcep.explain.answer import Answer, Contrast, describe
from hcep.explain.corrections import HASH, Correction
from hcep.explain.predictions import Prediction
from hcep.web.batching import ServerBusyError
from hcep.web.engine import Engine, Photo, PhotoNotFoundError, ReadOnlyModelError
from hcep.web.pages.frame import frame, nicegui, text, ui

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Id = Annotated[str, StringConstraints(pattern=f"^{HASH.pattern}$")]
Names = Annotated[list[Name], Form(max_length=32, description="concepts, by id, name or synonym")]
Sure = Annotated[
    float, Form(gt=0.0, lt=1.0, description="answer with the most specific concept that is at least this likely")
]
_STATUS: dict[type[Exception], int] = {ServerBusyError: 503, PhotoNotFoundError: 404, ReadOnlyModelError: 409}
_REF = "#/components/schemas/{name}"
#: In a shell.
_HASH = "$(sha256sum < photo.jpg | head -c 64)"
_PROBLEMS = {
    400: "the body cannot be read",
    404: "there is no such photo or correction",
    409: "the model cannot be changed",
    413: "the request is larger than the server accepts",
    422: "a photo cannot be decoded, a concept is unknown, or no path satisfies the request",
    503: "too many requests are waiting; Retry-After says when to try again",
    507: "the server cannot write to its disk",
}


class Problem(Struct):
    """What is wrong with a request, in one sentence."""

    error: str


class NewCorrection(BaseModel):
    """A correction of a photo: its class or a concept above it, none of the classes, or what it is not."""

    model_config = {"extra": "forbid"}
    image: Id
    label: Name | None = Field(None, alias="class")
    force: list[Name] = Field([], max_length=32)
    forbid: list[Name] = Field([], max_length=32)
    none: bool = False
    under: Name | None = None
    file: str = Field("", max_length=200)
    who: str = Field("", max_length=200)
    why: str = Field("", max_length=2000)


@dataclass
class Uploads:
    """The photos of a request: files, or the ids (SHA-256 of the file) of photos that were sent before."""

    photo: Annotated[list[UploadFile], File(description="image files")] = ()  # type: ignore[assignment]
    id: Annotated[list[Id], Form(max_length=32)] = ()  # type: ignore[assignment]

    async def photos(self, engine: Engine) -> list[Photo]:
        """The decoded and encoded photos; a problem with one photo is a problem with the request."""
        n, most = len(self.photo) + len(self.id), engine.limits.per_request
        if not 1 <= n <= most:
            raise HCEPError(f"send from 1 to {most} photos, as files (photo) or ids (id); got {n}")
        known = [engine.photo(key) for key in self.id]
        files = [(await file.read(), file.filename or "") for file in self.photo]
        photos = await asyncio.gather(*(engine.add_photo(*file) for file in files), return_exceptions=True)
        for (_, name), photo in zip(files, photos, strict=True):
            if isinstance(photo, HCEPError) and not isinstance(photo, ServerBusyError):
                raise HCEPError(f"{name[:100]}: {photo}")
            if isinstance(photo, BaseException):
                raise photo
        return [*photos, *known]  # type: ignore[list-item]


Photos = Annotated[Uploads, Depends()]


def register(app: FastAPI, engine: Engine, seen: Counter[str]) -> None:
    """Add the API, its description and a page about it to an application; `seen` counts responses by status."""
    router = APIRouter(prefix="/api/v1")

    async def answers(uploads: Uploads, **options: Any) -> list[Answer]:
        photos = await uploads.photos(engine)
        return list(await asyncio.gather(*(engine.explain(photo, **options) for photo in photos)))

    @router.post("/explain", responses=_responses(list[Answer]))
    async def explain(
        uploads: Photos,
        force: Names = [],  # noqa: B006
        forbid: Names = [],  # noqa: B006
        why_not: Names = [],  # noqa: B006
        n_best: Annotated[int, Form(ge=1, le=100)] = 3,
        sure: Sure = SURE,
        objects: Annotated[str | None, Form(pattern="^(auto|[1-9])$", description="largest number")] = None,
    ) -> Response:
        """The answer, the class and the path of photos, as `hcep explain --json` prints them."""
        n_paths: Any = int(objects) if objects and objects != "auto" else objects
        options: dict[str, Any] = {"force": force, "forbid": forbid, "why_not": why_not, "n_best": n_best}
        return _json(await answers(uploads, **options, sure=sure, n_paths=n_paths))

    @router.post("/predict", responses=_responses(list[Prediction]))
    async def predict(uploads: Photos, sure: Sure = SURE) -> Response:
        """The answer, the class and the path of photos, as the rows that `hcep predict` writes."""
        photos = await uploads.photos(engine)
        rows = await asyncio.gather(*(engine.explain(photo, n_best=1, sure=sure) for photo in photos))
        return _json([Prediction.of(answer, photo.id) for photo, answer in zip(photos, rows, strict=True)])

    @router.post("/contrast", responses=_responses(list[list[Contrast]]))
    async def contrast(uploads: Photos, why_not: Annotated[list[Name], Form(min_length=1, max_length=32)]) -> Response:
        """Why each answer is not another class or concept, as `hcep explain --why-not … --json` prints it."""
        return _json([answer.contrasts for answer in await answers(uploads, why_not=why_not)])

    @router.post("/whatif", responses=_responses(list[Answer]))
    async def whatif(
        uploads: Photos,
        force: Names = [],  # noqa: B006
        forbid: Names = [],  # noqa: B006
        set: Annotated[list[Name], Form(max_length=32, description="new coefficients: dog=0, or dog*2")] = [],  # noqa: B006
    ) -> Response:
        """Answers with concepts forced, forbidden or changed; corrections are ignored and nothing is saved."""
        plain = await answers(uploads, force=force, forbid=forbid, corrected=False)
        return _json(await engine.run(lambda: [answer.with_coefficients(set) for answer in plain]) if set else plain)

    @router.get("/corrections", responses=_responses(list[Correction]))
    async def corrections() -> Response:
        """The corrections in force, the oldest first."""
        return _json(list(engine.corrections.in_force.values()))

    @router.post("/corrections", status_code=201, responses=_responses(Correction, 201))
    async def add_correction(new: NewCorrection) -> Response:
        """Correct the answer for a photo; the response is sent once the correction is on disk."""
        facts = new.model_dump(exclude={"image"})
        correction = await engine.correct(new.image, **facts)
        return _json(correction, status=201)

    @router.delete("/corrections/{image}", status_code=204, responses=_responses(None, 204))
    async def undo_correction(image: Id) -> Response:
        """Undo the last correction of a photo."""
        await engine.undo_correction(image)
        return Response(status_code=204)

    @router.get("/model", responses=_responses(dict[str, Any]))
    async def model() -> Response:
        """The model, as `hcep info MODEL --json` prints it, its changes, and the limits of the server."""
        changes = [msgspec.to_builtins(change) for change in engine.saved.training.history]
        more = {"read_only": engine.read_only, "changes": changes, "limits": engine.limits._asdict()}
        return _json({**engine.saved.facts(), **more})

    @router.get("/hierarchy", responses=_responses(dict[str, Any]))
    async def hierarchy() -> Response:
        """The hierarchy of concepts, in the JSON format of `hcep hierarchy`."""
        return Response(await engine.run(engine.hierarchy.to_json), media_type="application/json")

    @router.get("/health", responses=_responses(dict[str, Any]))
    async def health() -> Response:
        """Whether the server is running; needs no token."""
        return _json({"status": "ok", "version": __version__})

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> str:
        """Counters in the text format of Prometheus."""
        lines = ["# TYPE hcep_requests_total counter"]
        lines += [f'hcep_requests_total{{status="{status}"}} {n}' for status, n in sorted(seen.items())]
        for name, n in {**engine.counts(), "pages": len(nicegui.Client.instances)}.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines.append(f"# TYPE hcep_{name} {kind}\nhcep_{name} {n}")
        return "\n".join(lines) + "\n"

    app.include_router(router)

    @app.api_route("/api/{rest:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"], include_in_schema=False)
    async def nowhere(request: Request) -> Response:
        path, known = request.url.path, [route for route in router.routes if isinstance(route, Route)]
        status = 405 if any(route.path_regex.match(path) for route in known) else 404
        return _json(Problem(f"there is no {request.method} {path}; the page /api lists all endpoints"), status)

    _describe(app)
    for kind in (HCEPError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _problem)


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


async def _problem(_: Request, error: Exception) -> Response:
    """An error as one sentence; a bug reveals nothing about the server."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"][1:])) or "the body"
        return _json(Problem(f"{where}: {first['msg']}"), 422)
    if isinstance(error, HTTPException):
        return _json(Problem(str(error.detail)), error.status_code, dict(error.headers or {}))
    if isinstance(error, HCEPError):
        later = {"Retry-After": str(error.seconds)} if isinstance(error, ServerBusyError) else None
        status = 507 if not_writable(error) else _STATUS.get(type(error), 422)
        return _json(Problem(str(error)), status, later)
    return _json(Problem("this is a bug in the server; its log has the details"), 500)


def _responses(kind: Any, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """The responses of an endpoint, for its description: a kind of record, or a problem."""

    def response(schema: dict[str, Any], words: str) -> dict[str, Any]:
        return {"description": words, "content": {"application/json": {"schema": schema}}}

    problem = {"$ref": _REF.format(name="Problem")}
    responses: dict[int | str, dict[str, Any]] = {code: response(problem, text) for code, text in _PROBLEMS.items()}
    if kind is None:
        return responses | {status: {"description": "done"}}
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return responses | {status: response(schema, "the answer")}


def _describe(app: FastAPI) -> None:
    """Serve the description of the API, and a page that shows it with example commands."""
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
            text("h1", "Use the explorer from a program")
            text("p", "Explain, question and correct photos in JSON, the same as the commands print.", "lead")
            text("a", "OpenAPI description", href="/openapi.json")
            for path, methods in openapi()["paths"].items():
                for method, endpoint in methods.items():
                    with text("section", classes="card stack"):
                        text("h2", f"{method.upper()} {path}", "wrap")
                        text("p", endpoint["description"].replace("`", ""))
                        for body in endpoint.get("requestBody", {}).get("content", {}).values():
                            record = schema["components"]["schemas"][body["schema"]["$ref"].rpartition("/")[2]]
                            text("p", f"Fields: {', '.join(record['properties'])}.", "soft")
                        command = _command(str(request.base_url)[:-1] + path, method, endpoint)
                        text("pre", command, "small wrap").style("white-space: pre-wrap; margin: 0")


def _command(address: str, method: str, endpoint: dict[str, Any]) -> str:
    """A command that calls an endpoint."""
    body, words = endpoint.get("requestBody", {}).get("content", {}), ["curl"]
    if "multipart/form-data" in body:
        words.append("-F photo=@photo.jpg" + (" -F why_not=dog" if address.endswith("contrast") else ""))
    elif "application/json" in body:
        example = json.dumps({"image": f"'{_HASH}'", "class": "tabby"})
        words.append(f"-H 'Content-Type: application/json' -d '{example}'")
    elif method != "get":
        words.append(f"-X {method.upper()}")
    return " ".join([*words, address.replace("{image}", _HASH)])
