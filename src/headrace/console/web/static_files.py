# SPDX-License-Identifier: Apache-2.0
"""The page's files, read into memory at the start: what is not among them cannot be asked for."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from headrace.client.errors import ClientError

FOLDER = Path(__file__).resolve().parents[1] / "static"
INDEX = "index.html"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
_SMALLEST_PACKED = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFile:
    data: bytes
    packed: bytes | None
    """By gzip; None where that saves nothing."""
    tag: str
    media_type: str

    def answer(self, request: Request) -> Response:
        headers = {"etag": self.tag, "cache-control": "no-cache", "vary": "Accept-Encoding"}
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        data = self.data
        if self.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            data = self.packed
            headers["content-encoding"] = "gzip"
        return Response(data, media_type=self.media_type, headers=headers)


class StaticFiles:
    """Files by their path below the folder, with `/` between its parts."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): _read(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix in _TYPES
        }
        if INDEX not in self._files:
            raise ClientError(
                f"the console's page is missing: {folder / INDEX}", next_step="install headrace again"
            )

    def get(self, path: str) -> StaticFile | None:
        return self._files.get(path)

    @property
    def index(self) -> StaticFile:
        return self._files[INDEX]


def _read(path: Path) -> StaticFile:
    data = path.read_bytes()
    packed = gzip.compress(data, mtime=0) if len(data) >= _SMALLEST_PACKED else None
    return StaticFile(
        data=data,
        packed=packed if packed is not None and len(packed) < len(data) else None,
        tag=f'"{hashlib.sha256(data).hexdigest()[:32]}"',
        media_type=_TYPES[path.suffix],
    )
