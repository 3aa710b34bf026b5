"""Print an access token for Azure's stores as JSON. Runs as a short-lived process.

`asked` gives the reason for the process. The question on stdin is null, or the tenant_id, client_id and client_secret
of a service principal. Null takes whatever azure-identity finds: the environment, a managed identity or the Azure CLI.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["main"]

_SCOPE = "https://storage.azure.com/.default"


def describe(what: dict[str, str] | None) -> dict[str, Any]:
    """Return a token and its expiry, or the reason why there is none."""
    try:
        import azure.core.exceptions
        import azure.identity
    except ImportError:
        return {"error": "the package azure-identity is needed for that: pip install azure-identity"}
    try:
        credential = (
            azure.identity.ClientSecretCredential(**what) if what else azure.identity.DefaultAzureCredential()
        )
        token = credential.get_token(_SCOPE)
    except (azure.core.exceptions.AzureError, ValueError) as error:  # its text may be long
        return {"error": f"azure-identity failed ({type(error).__name__})"}
    return {"token": token.token, "expires": token.expires_on}


def main() -> None:
    """Print the answer to the question on stdin."""
    json.dump(describe(json.load(sys.stdin)), sys.stdout)
