# SPDX-License-Identifier: Apache-2.0
"""Classifies disk errors (R24): temporary, of one log, or of the whole disk."""

from __future__ import annotations

import errno

from headrace.errors import StorageError

_DISK_ERRORS = (errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV)
_PASSING_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def will_pass(error: StorageError | OSError) -> bool:
    """Whether only disk space, descriptors or memory are lacking: the log itself is intact."""
    cause = _cause(error)
    return cause is not None and cause.errno in _PASSING_ERRORS


def failed_disk(error: StorageError | OSError) -> OSError | None:
    """The error of a disk that cannot be trusted with writes any more; None for others."""
    cause = _cause(error)
    return cause if cause is not None and cause.errno in _DISK_ERRORS else None


def _cause(error: StorageError | OSError) -> OSError | None:
    cause = error if isinstance(error, OSError) else error.__cause__
    return cause if isinstance(cause, OSError) else None
