# SPDX-License-Identifier: Apache-2.0
"""Decides when a KIP-848 group resolves its regular expressions against the topics.

All of a group's expressions are resolved at once, so that they cause one rebalance together, and at most
every ten seconds, as Apache Kafka does. Not part of the durable state. Read next: consumer/rebalance.py.
"""

from __future__ import annotations

from headrace.machines.groups.consumer.events import ResolveRegex
from headrace.machines.groups.consumer.state import ConsumerGroupState
from headrace.machines.machine import Step
from headrace.principal import Principal
from headrace.types import ClusterView

MIN_INTERVAL_MS = 10_000


class RegexRefresh:
    def __init__(self, view: ClusterView) -> None:
        self._topics_created_at = view.version
        self._asked = False
        self._resolved_at_ms: int | None = None

    def topics_created(self, view: ClusterView) -> None:
        self._topics_created_at = view.version

    def maybe_ask(
        self,
        step: Step,
        state: ConsumerGroupState,
        view: ClusterView,
        *,
        client_id: str,
        client_host: str,
        principal: Principal,
        interval_ms: int,
    ) -> None:
        """Of a group that has expressions, after a member's subscription was applied."""
        if self._asked or not self._is_due(step, state, interval_ms):
            return
        self._asked = True
        step.ask(
            ResolveRegex(
                group_id=state.group_id,
                regexes=frozenset(state.regex_subscribers),
                view=view,
                client_id=client_id,
                client_host=client_host,
                principal=principal,
            )
        )

    def _is_due(self, step: Step, state: ConsumerGroupState, interval_ms: int) -> bool:
        last_ms, now_ms = self._resolved_at_ms, step.now.monotonic_ms
        if last_ms is None or not state.resolved:
            return True
        if now_ms <= last_ms + MIN_INTERVAL_MS:
            return False
        return (
            state.regex_subscribers.keys() != state.resolved.keys()
            or any(found.version < self._topics_created_at for found in state.resolved.values())
            or now_ms > last_ms + interval_ms
        )

    def answered(self, step: Step, *, failed: bool) -> None:
        self._asked = False
        if not failed:
            self._resolved_at_ms = step.now.monotonic_ms
