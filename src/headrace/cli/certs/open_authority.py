# SPDX-License-Identifier: Apache-2.0
"""The authority of a certificate folder: the one that is there, or a new one.

For `headrace certs make` and `headrace cluster up --secure`. Read next: authority.py, folder.py.
"""

from __future__ import annotations

import datetime
import importlib
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from headrace.cli.certs.authority import Authority
    from headrace.cli.certs.folder import CertificateFolder

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365


def need_cryptography() -> None:
    """ClientError says what to install."""
    try:
        importlib.import_module("cryptography")
    except ModuleNotFoundError:
        raise ClientError(
            "making certificates needs the package cryptography", next_step="pip install headrace[certs]"
        ) from None


def open_authority(folder: CertificateFolder, days: int) -> tuple[Authority, bool]:
    """The authority, able to sign for so many days, and whether it is new."""
    from headrace.cli.certs.authority import Authority

    if not folder.has_authority():
        authority = Authority.create(AUTHORITY_DAYS)
        folder.save_authority(authority)
        return authority, True
    authority = folder.load_authority()
    left = authority.expires - datetime.datetime.now(datetime.UTC)
    if left.days + 1 < days:
        raise ClientError(
            f"the authority in {folder.path} expires in {max(left.days, 0)} days, before what it would sign",
            next_step="use a smaller --days, or another folder with --out for a new authority",
        )
    return authority, False
