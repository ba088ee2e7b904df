# SPDX-License-Identifier: Apache-2.0
"""Copies a topic to another in transactions, each with the group's progress; killed and started by a test.

Arguments: bootstrap, source, target, group, protocol, number of this copier.
"""

from __future__ import annotations

import sys
from typing import Any

import headrace
from headrace.client.errors import ClientError


def main(bootstrap: str, source: str, target: str, group: str, protocol: Any, number: str) -> None:
    transaction = headrace.transaction(f"{group}-{number}", bootstrap=bootstrap, transaction_timeout_ms=4000)
    stream = headrace.stream(
        source,
        bootstrap=bootstrap,
        group=group,
        protocol=protocol,
        commit=False,
        start="earliest",
        columns=["value"],
        budget=200_000,
        **({"session_timeout_ms": 6000} if protocol == "classic" else {}),
    )
    print("ready", flush=True)
    for batch in stream:
        copied = batch.num_rows
        try:
            transaction.begin()
            transaction.write(batch, target)
            transaction.send_offsets(stream.position(), stream.group_metadata())
            transaction.commit()
        except ClientError as error:
            print(f"again: {error}", flush=True)
            transaction.abort()
            stream.rewind()
            continue
        print(f"copied {copied}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
