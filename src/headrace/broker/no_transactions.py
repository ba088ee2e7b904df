"""Transactions are not served yet: what a client is told, and one line in the log for whoever wonders."""

from __future__ import annotations

import logging
from functools import lru_cache

logger = logging.getLogger(__name__)

NO_TRANSACTIONS = "transactions are not served by this version of Headrace; unset transactional.id"


@lru_cache(maxsize=256)
def log_refused_transaction(transactional_id: str) -> None:
    """Cached, so that a client which asks every second is named once."""
    logger.warning("no transactions for %r: %s", transactional_id, NO_TRANSACTIONS)
