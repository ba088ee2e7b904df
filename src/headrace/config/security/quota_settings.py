# SPDX-License-Identifier: Apache-2.0
"""Settings of quotas and of the rate of connections: Kafka's names and, where it says nothing else, defaults.

The quotas themselves are set while the cluster runs (docs/security.md). Read next: config/node_settings.py.
"""

from __future__ import annotations

from headrace.config.setting import at_least, node_setting

QUOTAS = (
    node_setting(
        "quota.window.num",
        "int",
        11,
        "Windows over which the rates of quotas are measured.",
        at_least(1),
    ),
    node_setting("quota.window.size.seconds", "int", 1, "The length of one of these windows.", at_least(1)),
    node_setting(
        "controller.quota.window.num",
        "int",
        11,
        "The same for `controller_mutation_rate`: so many windows' worth of changes may be made at once.",
        at_least(1),
    ),
    node_setting(
        "controller.quota.window.size.seconds", "int", 1, "The length of one of these windows.", at_least(1)
    ),
    node_setting(
        "max.connection.creation.rate",
        "int",
        1_000,
        "New connections per second, measured over `quota.window.num` windows; the requests of those "
        "beyond wait until the rate is met. Apache Kafka has no limit by default. A listener that only "
        "nodes use is exempt.",
        at_least(1),
    ),
)
