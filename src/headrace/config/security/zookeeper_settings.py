# SPDX-License-Identifier: Apache-2.0
"""Settings of the connection to ZooKeeper: login, entries that only nodes can read, TLS (S11).

Kafka's names of the time when it used ZooKeeper, where it had them.
Read next: coordination/zookeeper_security.py.
"""

from __future__ import annotations

from headrace.config.setting import node_setting

ZOOKEEPER = (
    node_setting(
        "headrace.zookeeper.user",
        "string",
        None,
        "The name by which nodes log in to ZooKeeper (scheme `digest`). Needs `headrace.zookeeper.password`.",
    ),
    node_setting(
        "headrace.zookeeper.password",
        "password",
        None,
        "The password of that name. ZooKeeper receives it as it is: use TLS where others can listen.",
    ),
    node_setting(
        "zookeeper.set.acl",
        "boolean",
        False,
        "Makes the entries of the cluster readable and writable by `headrace.zookeeper.user` only, also "
        "those that exist. Without it whoever reaches ZooKeeper can act as a node of the cluster.",
    ),
    node_setting(
        "zookeeper.ssl.client.enable",
        "boolean",
        False,
        "Connects to ZooKeeper by TLS, on the port of its `secureClientPort`.",
    ),
    node_setting(
        "zookeeper.ssl.truststore.location",
        "string",
        None,
        "A PEM file with the authorities that sign the certificates of ZooKeeper's servers.",
    ),
    node_setting(
        "zookeeper.ssl.keystore.location",
        "string",
        None,
        "A PEM file with the certificate and the key by which nodes identify themselves to ZooKeeper.",
    ),
    node_setting(
        "zookeeper.ssl.keystore.password",
        "password",
        None,
        "The password of the key in that file, if it has one.",
    ),
    node_setting(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "string",
        "HTTPS",
        "HTTPS: the certificate of a server must name its host. Empty: it need not.",
    ),
)
