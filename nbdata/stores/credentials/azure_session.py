"""Runs as a short process of its own: an access token for Azure's stores, as JSON on stdout.

See `asked` for why. What is asked: null (whatever azure-identity finds: the environment, a managed identity, the Azure
CLI), or tenant_id, client_id and client_secret of a service principal.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["main"]

_SCOPE = "https://storage.azure.com/.default"


def describe(what: dict[str, str] | None) -> dict[str, Any]:
    """A token and when it expires, or why there is none."""
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
    except (azure.core.exceptions.AzureError, ValueError) as error:  # the text of which may be long
        return {"error": f"azure-identity failed ({type(error).__name__})"}
    return {"token": token.token, "expires": token.expires_on}


def main() -> None:
    """Print the answer to the question on stdin."""
    json.dump(describe(json.load(sys.stdin)), sys.stdout)
