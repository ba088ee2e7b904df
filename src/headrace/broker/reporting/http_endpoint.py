# SPDX-License-Identifier: Apache-2.0
"""What a node answers to operators by HTTP: /metrics, /healthz, /readyz.

/metrics asks for a token where one is set; the other two tell nothing of the data, and probes seldom have
one. Read next: http_server.py, metrics_export.py, security/metrics_token.py, docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker.reporting.http_server import PLAIN, HttpError, HttpServer
from headrace.broker.reporting.metric_family import MetricSources
from headrace.broker.reporting.metrics_export import CONTENT_TYPE, MetricsExport
from headrace.broker.security.metrics_token import MetricsToken
from headrace.world import World

STALLED_LOOP_S = 10.0


class HttpEndpoint:
    """`why_not_ready` gives the reason why the node does not serve, or None when it does."""

    def __init__(
        self,
        world: World,
        sources: MetricSources,
        why_not_ready: Callable[[], str | None],
        token: MetricsToken,
    ) -> None:
        self._token = token
        self._metrics = sources.metrics
        self._why_not_ready = why_not_ready
        self._export = MetricsExport(sources, world)
        self.server = HttpServer(world, self._answer)

    async def _answer(self, path: str, head: bytes, peer: str) -> tuple[str, bytes]:
        if path == "/metrics":
            self.server.check_token(self._token, head, peer)
            return CONTENT_TYPE, await self._export.render()
        return PLAIN, self._check(path)

    def _check(self, path: str) -> bytes:
        if path == "/healthz":
            stalled_s = self._metrics.seconds_since_tick()
            if stalled_s > STALLED_LOOP_S:
                raise HttpError(503, f"housekeeping has not run for {stalled_s:.0f} s")
            return b"alive\n"
        if path == "/readyz":
            reason = self._why_not_ready()
            if reason is not None:
                raise HttpError(503, f"not ready: {reason}")
            return b"ready\n"
        raise HttpError(404, "there are /metrics, /healthz and /readyz")
