# SPDX-License-Identifier: Apache-2.0
"""All views by name. A view is one module of this package that defines `VIEW`."""

from __future__ import annotations

from headrace.console.views import (
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
