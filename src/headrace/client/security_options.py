# SPDX-License-Identifier: Apache-2.0
"""Options of Spark and of pipelines that say how to connect: `config`, a properties file, or `kafka.sasl.…`.

Names are those of security_names.py, with or without `kafka.`. They are read in the driver; the values
travel to the workers. Read next: pyspark_headrace/client_pool.py, which connects with them.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.client_config import configured_security
from headrace.client.errors import ClientError
from headrace.client.security_names import is_security_name, read_security
from headrace.client.security_settings import SecuritySettings

_PREFIX = "kafka."
CONFIG = "config"


def is_security_option(name: str) -> bool:
    return name.lower() == CONFIG or is_security_name(name.lower().removeprefix(_PREFIX))


def split_security_options(options: Mapping[str, str]) -> tuple[SecuritySettings, dict[str, str]]:
    """Return (security settings, other options). Unknown security options raise, none is ignored."""
    others = {name: value for name, value in options.items() if not is_security_option(name)}
    ours = {name.lower(): value for name, value in options.items() if name not in others}
    file = ours.pop(CONFIG, None)
    if not ours:
        return configured_security(file), others
    if file is not None:
        raise ClientError(
            f"options {CONFIG!r} and {next(iter(ours))!r} both say how to connect",
            next_step="write all of it into the file",
        )
    named = {name.removeprefix(_PREFIX): value for name, value in ours.items()}
    return read_security(named, where="options: ", prefix=_PREFIX), others
