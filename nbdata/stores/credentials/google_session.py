"""Print an access token for Google's stores as JSON. Runs as a short-lived process.

`asked` gives the reason for the process. The question on stdin is null, the path of a credentials file, or the content
of such a file. Null takes whatever google-auth finds: the file that GOOGLE_APPLICATION_CREDENTIALS names, the file that
``gcloud auth application-default login`` wrote, or the machine's service account.
"""

from __future__ import annotations

import calendar
import json
import sys
from typing import Any

__all__ = ["main"]

_SCOPES = ["https://www.googleapis.com/auth/devstorage.read_write"]


def describe(what: str | dict[str, Any] | None) -> dict[str, Any]:
    """Return a token and its expiry, or the reason why there is none."""
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
        # google-auth's error texts may hold secrets that were sent or received.
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
