# SPDX-License-Identifier: Apache-2.0
"""All views by name. A view is one module below this package that defines `VIEW`."""

from __future__ import annotations

from headrace.console.views.admin import acls, clients, configs, quotas, transactions, users
from headrace.console.views.cluster import cluster, history
from headrace.console.views.groups import group, groups
from headrace.console.views.pipelines import dead_letters, pipeline, pipelines
from headrace.console.views.topics import distribution, plan, topic, topics
from headrace.console.views.view import View, ViewError

VIEWS: dict[str, View] = {
    module.VIEW.name: module.VIEW
    for module in (
        acls,
        clients,
        cluster,
        configs,
        dead_letters,
        distribution,
        group,
        groups,
        history,
        pipeline,
        pipelines,
        plan,
        quotas,
        topic,
        topics,
        transactions,
        users,
    )
}


def find_view(name: str) -> View:
    try:
        return VIEWS[name]
    except KeyError:
        raise ViewError(
            f"there is no view {name!r}", next_step=f"one of: {', '.join(sorted(VIEWS))}"
        ) from None
