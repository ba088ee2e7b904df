"""Transactions are not supported yet: the error message for clients, and one log line per client."""

from __future__ import annotations

import logging
from functools import lru_cache

logger = logging.getLogger(__name__)

NO_TRANSACTIONS = "transactions are not served by this version of Headrace; unset transactional.id"


@lru_cache(maxsize=256)
def log_refused_transaction(transactional_id: str) -> None:
    """Cached, so that a client that retries is logged once."""
    logger.warning("no transactions for %r: %s", transactional_id, NO_TRANSACTIONS)
