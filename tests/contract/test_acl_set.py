# SPDX-License-Identifier: Apache-2.0
"""ACLs are a set on every store: adding and removing in any order equals plain set operations (S10)."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.store import Store
from headrace.realworld import RealWorld
from headrace.types import Endpoint
from tests.contract.store_backends import BACKENDS, Backend, Run, opener

BINDINGS = [
    AclBinding(ResourceType.TOPIC, name, pattern, principal, "*", Operation.READ, permission)
    for name in ("t", "t2", "*", "ä/ b:%" * 40)
    for pattern in (PatternType.LITERAL, PatternType.PREFIXED)
    for principal in ("User:ana", "User:CN=a,OU=b")
    for permission in (Permission.ALLOW, Permission.DENY)
]
steps = st.tuples(st.booleans(), st.lists(st.sampled_from(BINDINGS), max_size=6))


async def controlling(open_store: Callable[[], Awaitable[Store]]) -> ClusterMetadata:
    cluster = await ClusterMetadata.open(await open_store(), RealWorld())
    await cluster.register_node(
        node_id=1,
        host_id="host",
        hostname="name",
        endpoints=[Endpoint(listener="PLAINTEXT", host="localhost", port=1)],
        session_ttl_ms=30_000,
    )
    assert await cluster.become_controller(1) is not None
    return cluster


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "zookeeper"])
@settings(max_examples=25, deadline=None)
@given(history=st.lists(steps, max_size=10))
def test_any_history_leaves_the_set_that_set_operations_leave(
    backend: str, history: list[tuple[bool, list[AclBinding]]]
) -> None:
    async def main() -> None:
        world = RealWorld()
        with tempfile.TemporaryDirectory() as folder:
            cluster = await controlling(opener(backend, world, Path(folder)))
            model: set[AclBinding] = set()
            for adds, acls in history:
                change = cluster.create_acls if adds else cluster.delete_acls
                assert await change(acls) is None
                model = model | set(acls) if adds else model - set(acls)
                assert set(cluster.view.acls.values()) == model
                assert len(cluster.view.acls) == len(model)
            await cluster.close()
            await world.tasks.close()

    asyncio.run(main())


def test_changes_at_the_same_time_affect_only_what_they_name(run: Run) -> None:
    async def scenario(backend: Backend) -> None:
        cluster = await controlling(backend.open)
        assert await cluster.create_acls(BINDINGS) is None
        removed, kept = BINDINGS[::2], BINDINGS[1::2]
        results = await asyncio.gather(
            cluster.create_acls(kept),
            *(cluster.delete_acls([acl]) for acl in removed),
            *(cluster.delete_acls([acl]) for acl in removed),
            cluster.create_acls(kept),
        )
        assert set(results) == {None}
        assert set(cluster.view.acls.values()) == set(kept)
        other = await ClusterMetadata.open(await backend.open(), RealWorld())
        assert other.view.acls == cluster.view.acls
        await other.close()
        await cluster.close()

    run(scenario)
