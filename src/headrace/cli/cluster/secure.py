# SPDX-License-Identifier: Apache-2.0
"""`headrace cluster up --secure`: certificates, users and client files, made before the first node starts.

Secrets are written to files of mode 0600 and never printed (S18). Read next: headrace/cluster/security.py
(where the files are), cli/certs, cli/users.
"""

from __future__ import annotations

import secrets
import shlex
from dataclasses import replace
from pathlib import Path

from headrace.client.errors import ClientError
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.plan import ClusterError, ClusterPlan
from headrace.cluster.security import ADMIN, MECHANISM, NODE_HOSTS, USER, SecurityFolder
from headrace.scram_credential import DEFAULT_ITERATIONS

_PASSWORD_BYTES = 24
_OF_STORE = ("zookeeper.", "headrace.zookeeper.")
_LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def secure_plan(plan: ClusterPlan, folder: ClusterFolder) -> ClusterPlan:
    """The plan with security. Makes what its nodes need; an authority that is there is used."""
    from headrace.cli.certs.open_authority import need_cryptography

    need_cryptography()
    security = SecurityFolder(folder.path / "security")
    _make_certificates(security)
    for name in (ADMIN, USER):
        _make_user(name, plan, security)
    return replace(plan, security=str(security.path))


def next_commands(plan: ClusterPlan) -> list[str]:
    """What to run next on a secure cluster; no password is in it."""
    if plan.security is None:
        return []
    security = SecurityFolder(Path(plan.security))
    config = shlex.quote(str(security.client_properties(ADMIN)))
    admin = f"--bootstrap {plan.members[0].address} --command-config {config}"
    grant = f"--principal User:{USER} --operation all --topic {USER}- --group {USER}- --prefixed"
    return [
        f"It has TLS, logins and ACLs. Client files of {ADMIN} (super user) and {USER} (may do nothing yet)",
        f"are in {security.path}. Next:",
        f"  headrace topics list {admin}",
        f"  headrace acls add {grant} {admin}",
    ]


def _make_certificates(security: SecurityFolder) -> None:
    from headrace.cli.certs.folder import CertificateFolder
    from headrace.cli.certs.open_authority import CERTIFICATE_DAYS, open_authority

    folder = CertificateFolder(security.certificates)
    authority, _ = open_authority(folder, CERTIFICATE_DAYS)
    folder.save_node(NODE_HOSTS[0], authority.node(NODE_HOSTS, CERTIFICATE_DAYS))


def _make_user(name: str, plan: ClusterPlan, security: SecurityFolder) -> None:
    """Stored first: a store that cannot be reached, or has the user, leaves no file behind."""
    from headrace.cli.users.directory import StoreDirectory
    from headrace.config import load_config

    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    of_store = {key: value for key, value in plan.settings.items() if key.startswith(_OF_STORE)}
    config = load_config(None, {**of_store, "headrace.coordination": plan.coordination}, None)
    try:
        StoreDirectory(config).set_password(name, password.encode(), DEFAULT_ITERATIONS, new=True)
    except ClientError:
        raise ClusterError(
            f"the store {plan.coordination} has a user {name!r} already, of another cluster or of an attempt "
            "that was interrupted",
            "name another with --coordination, or another --dir",
        ) from None
    write_client_files(name, password, plan.bootstrap, security)


def write_client_files(name: str, password: str, bootstrap: str, security: SecurityFolder) -> None:
    """The password, and settings with it for both kinds of clients."""
    from headrace.cli.certs.folder import PRIVATE, make_folder, write_file, write_settings

    make_folder(security.path / name)
    write_file(security.password(name), f"{password}\n".encode(), PRIVATE)
    common = {"bootstrap.servers": bootstrap, "security.protocol": "SASL_SSL", "sasl.mechanism": MECHANISM}
    write_settings(
        security.client_properties(name),
        f"{name}: settings for Java clients and for headrace --command-config.",
        {
            **common,
            "sasl.jaas.config": f'{_LOGIN_MODULE} required username="{name}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(security.authority),
        },
    )
    write_settings(
        security.librdkafka(name),
        f"{name}: settings for clients built on librdkafka, such as confluent-kafka and kcat.",
        {
            **common,
            "sasl.username": name,
            "sasl.password": password,
            "ssl.ca.location": str(security.authority),
        },
    )
