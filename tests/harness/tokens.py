# SPDX-License-Identifier: Apache-2.0
"""A token issuer for tests: keys made at test time, their JWKS, and tokens signed by them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Literal

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

ISSUER, AUDIENCE = "https://issuer.example", "kafka"


class Issuer:
    """`algorithm` of RSA or of the elliptic curve P-256."""

    def __init__(self, algorithm: Literal["RS256", "ES256"] = "ES256", key_id: str | None = "k1") -> None:
        self.algorithm = algorithm
        self.key_id = key_id
        parameters: Any = {} if key_id is None else {"kid": key_id}
        self.key: RSAKey | ECKey = (
            ECKey.generate_key("P-256", parameters=parameters)
            if algorithm == "ES256"
            else RSAKey.generate_key(2048, parameters=parameters)
        )

    def jwks(self) -> dict[str, Any]:
        return {"keys": [{**self.key.as_dict(private=False), "use": "sig"}]}

    def write_jwks(self, path: Path) -> str:
        """The URL of the file."""
        path.write_text(json.dumps(self.jwks()))
        return f"file://{path}"

    def token(self, user: str = "ann", *, lifetime_s: float = 60, header: Any = None, **claims: Any) -> str:
        """Claims given as None are left out."""
        now = time.time()
        usual = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": int(now), "exp": now + lifetime_s}
        kept = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        named = {} if self.key_id is None else {"kid": self.key_id}
        return jwt.encode({"alg": self.algorithm, **named, **(header or {})}, kept, self.key)


def oauth_settings(jwks_url: str) -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": jwks_url,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
