"""Runs as a short process of its own: an access token for Google's stores, as JSON on stdout.

See `asked` for why. What is asked: null (whatever google-auth finds: a file that GOOGLE_APPLICATION_CREDENTIALS
names, what ``gcloud auth application-default login`` left, the machine's service account), the path of a file of
credentials, or what such a file holds.
"""

from __future__ import annotations

import calendar
import json
import sys
from typing import Any

__all__ = ["main"]

_SCOPES = ["https://www.googleapis.com/auth/devstorage.read_write"]


def describe(what: str | dict[str, Any] | None) -> dict[str, Any]:
    """A token and when it expires, or why there is none."""
    try:
        import google.auth
        import google.auth.exceptions
        import google.auth.transport.requests
    except ImportError:
        return {"error": "the package google-auth is needed for that: pip install 'google-auth[requests]'"}
    try:
        if what is None:
            credentials, project = google.auth.default(scopes=_SCOPES)
        elif isinstance(what, str):
            credentials, project = google.auth.load_credentials_from_file(what, scopes=_SCOPES)
        else:
            credentials, project = google.auth.load_credentials_from_dict(what, scopes=_SCOPES)
        credentials.refresh(google.auth.transport.requests.Request())
    except (google.auth.exceptions.GoogleAuthError, OSError, ValueError) as error:
        # The text of others may hold what was sent or came.
        lost = isinstance(error, google.auth.exceptions.DefaultCredentialsError)
        return {"error": str(error) if lost else f"google-auth failed ({type(error).__name__})"}
    expiry = getattr(credentials, "expiry", None)
    return {
        "token": credentials.token,
        "expires": calendar.timegm(expiry.utctimetuple()) if expiry else None,
        "project": project,
    }


def main() -> None:
    """Print the answer to the question on stdin."""
    json.dump(describe(json.load(sys.stdin)), sys.stdout)
