# SPDX-License-Identifier: Apache-2.0
"""Builds the ClusterView from the changes of the store.

Pure: no store, no clock. Unchanged parts are shared between views. Read next: cluster_metadata.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from headrace.coordination import documents
from headrace.coordination.recovery import history
from headrace.coordination.recovery.history import StoreHistory
from headrace.coordination.store import Changes, Entry, View
from headrace.coordination.transaction_version import level_in_effect
from headrace.errors import CoordinationError
from headrace.types import NO_NODE, ClusterView, FinalizedFeatures, Node

T = TypeVar("T")


class Projection:
    """The latest view, and what writers need besides: entry versions, owners, the next producer id."""

    def __init__(self, view: View) -> None:
        self.view = ClusterView(version=0, cluster_id="")
        self.versions: dict[str, int] = {}
        self.owners: dict[str, int] = {}
        self.next_producer_id = 0
        self.node_secret = b""
        self._registered: Mapping[int, documents.RegisteredNode] = {}
        self._admissions: Mapping[int, documents.Admission] = {}
        self.commits = 0
        self.store_history = StoreHistory()
        self.apply(Changes(version=view.version, changed=view.entries, complete=True, commits=view.commits))

    def apply(self, changes: Changes) -> ClusterView:
        changed: Mapping[str, Entry | None] = changes.changed
        if changes.complete:
            gone = self.versions.keys() - changed.keys()
            changed = {**dict.fromkeys(sorted(gone)), **changed}
        draft = _Draft(self.view, self._registered, self._admissions)
        draft.next_producer_id, draft.node_secret = self.next_producer_id, self.node_secret
        for key, entry in changed.items():
            try:
                draft.put(key, entry)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                raise CoordinationError(f"the coordination entry {key} cannot be read: {error!r}") from error
        if draft.registered is not self._registered or draft.admissions is not self._admissions:
            draft.sort_nodes()
        if history.KEY in changed:
            self.store_history = _history_of(changed[history.KEY])
        self.commits = changes.commits
        for key, entry in changed.items():
            self._note(key, entry)
        self.view = draft.finish(changes.version)
        self._registered, self._admissions = draft.registered, draft.admissions
        self.next_producer_id, self.node_secret = draft.next_producer_id, draft.node_secret
        return self.view

    def _note(self, key: str, entry: Entry | None) -> None:
        if entry is None:
            self.versions.pop(key, None)
            self.owners.pop(key, None)
            return
        self.versions[key] = entry.version
        if entry.owner is not None:
            self.owners[key] = entry.owner


def _history_of(entry: Entry | None) -> StoreHistory:
    if entry is None:
        return StoreHistory()
    try:
        return history.decode(history.KEY, entry.value)
    except (KeyError, TypeError, ValueError) as error:
        raise CoordinationError(f"the coordination entry {history.KEY} cannot be read: {error!r}") from error


class _Draft:
    """A view under construction; mappings are copied on first write."""

    def __init__(
        self,
        view: ClusterView,
        registered: Mapping[int, documents.RegisteredNode],
        admissions: Mapping[int, documents.Admission],
    ) -> None:
        self._view = view
        self._fields: dict[str, Any] = {}
        self.registered = registered
        self.admissions = admissions
        self.next_producer_id = 0
        self.node_secret = b""

    def put(self, key: str, entry: Entry | None) -> None:
        if (name := documents.topic_of_key(key)) is not None:
            self._put_topic(key, name, entry)
        elif (node_id := documents.node_of_key(key)) is not None:
            found = documents.decode_node(key, entry.value, node_id, entry.created) if entry else None
            self.registered = _with(self.registered, node_id, found)
        elif (node_id := documents.admitted_node_of_key(key)) is not None:
            admission = documents.decode_admission(key, entry.value) if entry else None
            self.admissions = _with(self.admissions, node_id, admission)
        elif (configured := documents.configured_node_of_key(key)) is not None:
            configs = documents.decode(key, entry.value)["configs"] if entry else None
            _put(self._writable("node_configs"), configured, configs)
        elif (group_id := documents.configured_group_of_key(key)) is not None:
            configs = documents.decode(key, entry.value)["configs"] if entry else None
            _put(self._writable("group_configs"), group_id, configs)
        elif key == documents.CONTROLLER:
            self._fields["controller_id"] = documents.decode(key, entry.value)["node"] if entry else NO_NODE
        elif key == documents.CONTROLLER_EPOCH and entry:
            self._fields["controller_epoch"] = documents.decode(key, entry.value)["epoch"]
        elif key == documents.CLUSTER and entry:
            self._fields["cluster_id"] = documents.decode(key, entry.value)["id"]
        elif key == documents.PRODUCER_IDS and entry:
            self.next_producer_id = documents.decode(key, entry.value)["next"]
        elif key == documents.FEATURES:
            self._put_features(key, entry)
        else:
            self._put_access(key, entry)

    def _put_features(self, key: str, entry: Entry | None) -> None:
        found = documents.decode_features(key, entry.value) if entry else FinalizedFeatures()
        self._fields["finalized_features"] = found

    def _put_access(self, key: str, entry: Entry | None) -> None:
        """Who may connect, do what, and how much."""
        if (user := documents.user_of_key(key)) is not None:
            credentials = documents.decode_user(key, entry.value) if entry else None
            _put(self._writable("users"), user, credentials)
        elif documents.is_acl_key(key):
            acl = documents.decode_acl(key, entry.value) if entry else None
            _put(self._writable("acls"), key, acl)
        elif (entity := documents.quota_entity_of_key(key)) is not None:
            quotas = documents.decode_quotas(key, entry.value) if entry else None
            _put(self._writable("client_quotas"), entity, quotas)
        elif key == documents.NODE_LOGIN and entry:
            self._fields["node_login_required"] = documents.decode(key, entry.value)["required"]
        elif key == documents.NODE_SECRET and entry:
            self.node_secret = documents.decode_secret(key, entry.value)

    def sort_nodes(self) -> None:
        """Split registered nodes into live and joining: an admission is valid for one incarnation only."""
        live: dict[int, Node] = {}
        joining: dict[int, Node] = {}
        fenced: dict[int, Node] = {}
        for node_id, (node, waits) in self.registered.items():
            epoch, gave_up = self.admissions.get(node_id, (None, False))
            if epoch == node.epoch:
                (fenced if gave_up else live)[node_id] = node
            else:
                (joining if waits else live)[node_id] = node
        self._fields |= {"nodes": live, "joining": joining, "fenced": fenced}

    def finish(self, version: int) -> ClusterView:
        if not self._fields.keys().isdisjoint(("nodes", "finalized_features")):
            features = self._fields.get("finalized_features", self._view.finalized_features)
            nodes = (registered.node for registered in self.registered.values())
            finalized = features.levels.get(documents.TRANSACTION_VERSION, 0)
            self._fields["transaction_version"] = level_in_effect(nodes, finalized)
        return replace(self._view, version=version, **self._fields)

    def _put_topic(self, key: str, name: str, entry: Entry | None) -> None:
        topics = self._writable("topics")
        names = self._writable("topic_names")
        if (before := topics.get(name)) is not None:
            names.pop(before.topic_id, None)
        topic = documents.decode_topic(key, entry.value, name) if entry else None
        _put(topics, name, topic)
        if topic is not None:
            names[topic.topic_id] = name

    def _writable(self, field: str) -> dict[Any, Any]:
        if field not in self._fields:
            self._fields[field] = dict(getattr(self._view, field))
        mapping: dict[Any, Any] = self._fields[field]
        return mapping


def _with(mapping: Mapping[int, T], key: int, value: T | None) -> dict[int, T]:
    changed = dict(mapping)
    _put(changed, key, value)
    return changed


def _put(mapping: dict[Any, Any], key: object, value: object | None) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value
