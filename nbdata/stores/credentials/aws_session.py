"""Print botocore's credentials for an AWS environment as JSON. Runs as a short-lived process.

botocore reads the environment of its process, but the agent serves clients with different environments. So the agent
starts this module with the client's environment instead of importing botocore.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["main"]


def describe(profile: str | None) -> dict[str, Any]:
    """Return the credentials, region and endpoint of a profile, or of the environment."""
    import botocore.exceptions
    import botocore.session

    session = botocore.session.Session(profile=profile)
    try:
        config = session.get_scoped_config()
        credentials = session.get_credentials()
    except botocore.exceptions.BotoCoreError as error:
        return {"error": str(error)}
    answer: dict[str, Any] = {"region": session.get_config_variable("region"), "ca": config.get("ca_bundle")}
    s3 = config.get("s3")
    answer["addressing"] = s3.get("addressing_style") if isinstance(s3, dict) else None
    answer["endpoint"] = config.get("endpoint_url")
    services = session.full_config.get("services", {}).get(config.get("services"), {})
    if isinstance(services.get("s3"), dict):
        answer["endpoint"] = services["s3"].get("endpoint_url") or answer["endpoint"]
    if credentials is not None:
        try:
            frozen = credentials.get_frozen_credentials()
        except botocore.exceptions.BotoCoreError as error:
            return {"error": str(error)}
        expiry = getattr(credentials, "_expiry_time", None)
        answer.update(
            key=frozen.access_key,
            secret=frozen.secret_key,
            token=frozen.token or "",
            method=credentials.method,
            expires=expiry.timestamp() if expiry is not None else None,
        )
    return answer


def main() -> None:
    """Print the description for the profile that stdin names (null: the default)."""
    json.dump(describe(json.load(sys.stdin)), sys.stdout)
