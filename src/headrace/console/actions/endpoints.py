# SPDX-License-Identifier: Apache-2.0
"""What changes the cluster: previews, and changes with the token of a preview.

Read next: offsets.py, dead_letters.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.console.actions.dead_letters import PlannedReplay, Replayed, plan_replay, replay
from headrace.console.actions.offsets import PlannedReset, apply_reset, plan_reset
from headrace.console.actions.pending import Pending
from headrace.console.actions.replay_records import parse_request as parse_replay
from headrace.console.actions.reset_request import parse_request as parse_reset
from headrace.console.endpoint import Endpoint
from headrace.console.views.view import Document, Params, Source

_resets: Pending[PlannedReset] = Pending()
_replays: Pending[PlannedReplay] = Pending()
_replayed = Replayed()


async def _preview_offsets(source: Source, params: Params, body: Mapping[str, Any]) -> Document:
    plan, document = await source.run(plan_reset, source.cluster, parse_reset(body))
    return {**document, "token": _resets.keep(source.cluster, plan)}


async def _set_offsets(source: Source, params: Params, body: Mapping[str, Any]) -> Document:
    plan = _resets.take(source.cluster, body.get("token"))
    return await source.run(apply_reset, source.cluster, plan)


async def _preview_replay(source: Source, params: Params, body: Mapping[str, Any]) -> Document:
    plan, document = await plan_replay(source, parse_replay(body), _replayed)
    return {**document, "token": _replays.keep(source.cluster, plan)}


async def _replay(source: Source, params: Params, body: Mapping[str, Any]) -> Document:
    return await replay(source, _replays.take(source.cluster, body.get("token")), _replayed)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(method="POST", path="/groups/offsets/preview", handle=_preview_offsets),
    Endpoint(method="POST", path="/groups/offsets", handle=_set_offsets),
    Endpoint(method="POST", path="/dead-letters/replay/preview", handle=_preview_replay),
    Endpoint(method="POST", path="/dead-letters/replay", handle=_replay),
)
