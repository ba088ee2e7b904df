# SPDX-License-Identifier: Apache-2.0
"""Settings of features whose level the nodes of a cluster agree on."""

from __future__ import annotations

from headrace.config.setting import between, node_setting

FEATURES = (
    node_setting(
        "headrace.transaction.version",
        "int",
        2,
        "The highest level of Kafka's feature `transaction.version` in this cluster. The level is 2 while "
        "every registered node serves it. 1 keeps producers on the protocol before KIP-890; 0 refuses "
        "transactions, for example before nodes go back to an earlier release. The lowest value of all nodes "
        "counts; of values that were not altered while nodes run, that of the controller.",
        between(0, 2),
        dynamic=True,
    ),
)
