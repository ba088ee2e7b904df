# SPDX-License-Identifier: Apache-2.0
"""Users with SCRAM credentials of any Kafka cluster, through its API. Errors: kafka_errors.py."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Mapping
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.kafka_errors import client_error
from headrace.client.reachable import check_reachable
from headrace.client.settings import client_settings

_TIMEOUT_S = 15.0


class UserAdmin:
    """Every method raises ClientError, and nothing else, when the cluster fails or refuses it."""

    def __init__(self, cluster: str | Cluster) -> None:
        check_reachable(cluster)
        import confluent_kafka.admin

        self._kafka: Any = confluent_kafka
        self._client: Any = confluent_kafka.admin.AdminClient(client_settings(cluster))

    def all(self) -> dict[str, dict[str, int]]:
        """Iterations by user and mechanism."""
        described = self._result(self._client.describe_user_scram_credentials(request_timeout=_TIMEOUT_S), "")
        return {
            name: {_mechanism_name(info.mechanism): info.iterations for info in found.scram_credential_infos}
            for name, found in described.items()
        }

    def set_password(self, name: str, password: bytes, iterations: Mapping[str, int]) -> None:
        """One credential for each mechanism, with the number of iterations given."""
        admin = self._kafka.admin
        self._alter(
            name,
            [
                admin.UserScramCredentialUpsertion(
                    name, admin.ScramCredentialInfo(_mechanism(admin, mechanism), count), password
                )
                for mechanism, count in iterations.items()
            ],
        )

    def remove(self, name: str, mechanisms: list[str]) -> None:
        admin = self._kafka.admin
        deletion = admin.UserScramCredentialDeletion
        self._alter(name, [deletion(name, _mechanism(admin, mechanism)) for mechanism in mechanisms])

    def _alter(self, name: str, changes: list[Any]) -> None:
        try:
            futures = self._client.alter_user_scram_credentials(changes, request_timeout=_TIMEOUT_S)
        except (ValueError, TypeError) as error:  # librdkafka's check of the arguments
            raise ClientError(f"user {name!r}: {error}") from error
        for future in futures.values():
            self._result(future, name)

    def _result(self, future: Any, name: str) -> Any:
        try:
            return future.result(_TIMEOUT_S + 1)
        except self._kafka.KafkaException as error:
            raise client_error(error, name=name, kind="user") from error
        except concurrent.futures.TimeoutError as error:
            raise ClientError("the broker did not answer in time", code="_TIMED_OUT") from error


def _mechanism(admin: Any, name: str) -> Any:
    return admin.ScramMechanism[name.replace("-", "_")]


def _mechanism_name(mechanism: Any) -> str:
    return str(mechanism.name).replace("_", "-")
