# SPDX-License-Identifier: Apache-2.0
"""Which level of transaction.version nodes have in common: documents old and new, joins, leaves, upgrades."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination import documents
from headrace.coordination.projection import Projection
from headrace.coordination.store import Changes, Entry, View
from headrace.coordination.transaction_version import (
    SERVED,
    finalized_level,
    highest_served,
    level_in_effect,
    level_to_finalize,
    why_no_transactions,
)
from headrace.types import ClusterView, FinalizedFeatures, Node

EARLIER, THIS = (0, 0), SERVED
EARLIER_DOCUMENT = (
    b'{"format":1,"host_id":"h","hostname":"n","rack":null,'
    b'"endpoints":[{"listener":"PLAINTEXT","host":"127.0.0.1","port":9092}],"waits":true,"logs_in":true}'
)
"""As releases before transactions wrote it."""


def node(node_id: int, versions: tuple[int, int] = THIS) -> Node:
    return Node(
        node_id=node_id, epoch=node_id, host_id="h", hostname="n", endpoints=(), transaction_versions=versions
    )


def cluster(registered: Mapping[int, tuple[int, int]], finalized: int = 0) -> ClusterView:
    return ClusterView(
        version=1,
        cluster_id="c",
        nodes={node_id: node(node_id, versions) for node_id, versions in registered.items()},
        finalized_features=FinalizedFeatures(epoch=0, levels={documents.TRANSACTION_VERSION: finalized}),
    )


def entry(value: bytes, version: int = 1) -> Entry:
    return Entry(value=value, version=version, created=version)


def finalized(level: int, epoch: int = 0) -> Entry:
    features = FinalizedFeatures(epoch=epoch, levels={documents.TRANSACTION_VERSION: level})
    return entry(documents.encode_features(features))


# Documents


def test_a_node_of_an_earlier_release_is_read_as_one_without_transactions() -> None:
    read = documents.decode_node("/nodes/1", EARLIER_DOCUMENT, 1, 5)
    assert read.node.transaction_versions == EARLIER
    assert read.node.logs_in
    assert read.waits


def test_what_a_node_serves_is_a_field_of_its_own_that_earlier_releases_ignore() -> None:
    document = json.loads(documents.encode_node(replace(node(1), logs_in=True), waits=True))
    assert document.pop("features") == {"transaction.version": [0, 2]}
    assert document.keys() == json.loads(EARLIER_DOCUMENT).keys()
    assert document["format"] == 1


@pytest.mark.parametrize("versions", [EARLIER, (0, 1), THIS, (1, 3)])
def test_what_a_node_serves_is_read_as_written(versions: tuple[int, int]) -> None:
    written = documents.encode_node(node(1, versions))
    assert documents.decode_node("/nodes/1", written, 1, 1).node == node(1, versions)


def test_features_of_a_later_release_are_kept() -> None:
    features = FinalizedFeatures(epoch=4, levels={"transaction.version": 2, "share.version": 1})
    assert documents.decode_features("/features", documents.encode_features(features)) == features


# The view


def projected(**entries: Entry) -> Projection:
    return Projection(View(version=1, entries={f"/{key.replace('_', '/')}": e for key, e in entries.items()}))


def test_a_store_of_an_earlier_release_has_level_0() -> None:
    view = projected(nodes_1=entry(documents.encode_node(node(1)))).view
    assert (view.transaction_version, view.finalized_features.epoch) == (0, -1)


def test_the_view_falls_as_soon_as_a_node_of_an_earlier_release_registers() -> None:
    """Also under a controller of an earlier release, which never writes the level."""
    projection = projected(nodes_1=entry(documents.encode_node(node(1))), features=finalized(2))
    assert projection.view.transaction_version == 2
    joined = projection.apply(Changes(version=2, changed={"/nodes/2": entry(EARLIER_DOCUMENT, 2)}))
    assert joined.transaction_version == 0
    left = projection.apply(Changes(version=3, changed={"/nodes/2": None}))
    assert left.transaction_version == 2


def test_a_fenced_node_of_an_earlier_release_is_still_registered() -> None:
    admission = documents.encode_admission(documents.Admission(epoch=1, fenced=True))
    projection = projected(
        nodes_1=entry(EARLIER_DOCUMENT), admissions_1=entry(admission), features=finalized(2)
    )
    assert projection.view.fenced.keys() == {1}
    assert projection.view.transaction_version == 0


def test_the_view_follows_what_is_finalized() -> None:
    projection = projected(nodes_1=entry(documents.encode_node(node(1))), features=finalized(1))
    assert projection.view.transaction_version == 1
    risen = projection.apply(Changes(version=2, changed={"/features": finalized(2, epoch=1)}))
    assert (risen.transaction_version, risen.finalized_features.epoch) == (2, 1)
    assert projection.apply(Changes(version=3, changed={"/features": None})).transaction_version == 0


def test_a_level_of_a_later_release_is_not_shown_above_what_is_served_here() -> None:
    assert projected(features=finalized(9)).view.transaction_version == SERVED[1]


# Levels


@pytest.mark.parametrize(
    ("ranges", "limit", "level"),
    [
        ([], 2, 2),
        ([THIS], 2, 2),
        ([THIS, THIS], 1, 1),
        ([THIS, (0, 1)], 2, 1),
        ([THIS, EARLIER], 2, 0),
        ([(0, 1), (2, 3)], 2, 0),
        ([THIS], 0, 0),
        ([THIS], -1, 0),
    ],
)
def test_the_highest_level_in_common(ranges: list[tuple[int, int]], limit: int, level: int) -> None:
    assert highest_served([node(i, each) for i, each in enumerate(ranges)], limit) == level


def test_the_level_does_not_rise_while_a_node_with_replicas_is_stopped() -> None:
    """It may return as the earlier release that it was, and follow transactions without an index."""
    view = cluster({1: THIS, 2: THIS})
    assert level_to_finalize(view, held_at=2, replica_holders={1, 2, 3}) == (0, [3])
    assert level_to_finalize(view, held_at=2, replica_holders={1, 2}) == (2, [])


def test_a_stopped_node_does_not_lower_the_level() -> None:
    view = cluster({1: THIS, 2: THIS}, finalized=2)
    assert level_to_finalize(view, held_at=2, replica_holders={1, 2, 3}) == (2, [])


def test_the_refusal_names_the_nodes_of_an_earlier_release() -> None:
    assert "earlier release are registered: 2, 5" in why_no_transactions(
        cluster({5: EARLIER, 1: THIS, 2: EARLIER})
    )
    assert "headrace.transaction.version" in why_no_transactions(cluster({1: THIS}))


class History:
    """Nodes that stop, return with another release, get and lose replicas, and rounds of the controller."""

    def __init__(self) -> None:
        self.installed: dict[int, tuple[int, int]] = {}
        self.registered: dict[int, tuple[int, int]] = {}
        self.holders: set[int] = set()
        self.held_at = 2
        self.finalized = 0

    def round(self) -> None:
        before, view = self.finalized, cluster(self.registered, self.finalized)
        self.finalized, awaited = level_to_finalize(view, held_at=self.held_at, replica_holders=self.holders)
        assert self.finalized <= self.held_at
        for low, high in self.registered.values():
            assert self.finalized == 0 or low <= self.finalized <= high
        if self.finalized > before:
            assert self.holders <= self.registered.keys()
            assert all(self.installed[each][1] >= self.finalized for each in self.holders)
        common = highest_served(view.nodes.values(), self.held_at)
        assert self.finalized == common or (awaited and common > before)

    @property
    def in_effect(self) -> int:
        return level_in_effect(cluster(self.registered).nodes.values(), self.finalized)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["start", "stop", "upgrade", "downgrade", "hold", "release", "set"]),
        st.integers(1, 4),
        st.booleans(),
    ),
    max_size=40,
)


@given(EVENTS)
def test_in_any_history_transactions_are_served_by_all_nodes_or_not_at_all(
    events: list[tuple[str, int, bool]],
) -> None:
    history = History()
    for kind, node_id, controller_acts in events:
        match kind:
            case "start":
                history.registered[node_id] = history.installed.setdefault(node_id, THIS)
            case "stop":
                history.registered.pop(node_id, None)
            case "upgrade" | "downgrade" if node_id not in history.registered:
                history.installed[node_id] = THIS if kind == "upgrade" else EARLIER
            case "hold" if node_id in history.registered:
                history.holders.add(node_id)
            case "release":
                history.holders.discard(node_id)
            case "set":
                history.held_at = node_id % 3
        earlier = EARLIER in history.registered.values()
        assert not (earlier and history.in_effect)
        if controller_acts:
            history.round()
            assert history.in_effect == history.finalized


@given(st.dictionaries(st.integers(1, 4), st.sampled_from([EARLIER, (0, 1), THIS])), st.integers(0, 2))
def test_the_level_is_settled_after_one_round(registered: dict[int, tuple[int, int]], present: int) -> None:
    view = cluster(registered, present)
    level, _ = level_to_finalize(view, held_at=2, replica_holders=registered)
    settled = cluster(registered, level)
    assert finalized_level(settled) == level
    assert level_to_finalize(settled, held_at=2, replica_holders=registered).level == level
