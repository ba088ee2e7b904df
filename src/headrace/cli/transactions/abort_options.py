# SPDX-License-Identifier: Apache-2.0
"""The options that name a transaction in a partition. Read next: abort.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTarget:
    """One transaction in one partition: by its first offset, or by its producer."""

    topic: Annotated[str, typer.Option("--topic", "-t", help="Name of the topic.")]
    partition: Annotated[
        int, typer.Option("--partition", min=0, metavar="N", help="Number of the partition.")
    ]
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", min=0, metavar="N", help="First offset of the transaction."),
    ] = None
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", min=0, metavar="N", help="Instead: its producer id.")
    ] = None
    producer_epoch: Annotated[
        int | None, typer.Option("--producer-epoch", min=0, metavar="N", help="With --producer-id.")
    ] = None
    coordinator_epoch: Annotated[
        int | None,
        typer.Option(
            "--coordinator-epoch",
            min=-1,
            metavar="N",
            help="With --producer-id: of the producer's last marker there, or -1.",
        ),
    ] = None

    def check(self) -> None:
        producer = (self.producer_id, self.producer_epoch, self.coordinator_epoch)
        by_producer = all(each is not None for each in producer)
        if self.start_offset is not None and producer == (None, None, None):
            return
        if self.start_offset is None and by_producer:
            return
        raise typer.BadParameter(
            "give either --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch"
        )
