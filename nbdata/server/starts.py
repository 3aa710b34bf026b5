"""Where people may begin to browse stores: folders of recent jobs, and the names of what is configured."""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterable, Mapping
from typing import Any

from nbdata.client.browsing import BROWSED
from nbdata.paths import glob_base, has_glob, is_url
from nbdata.redaction import printable, redacted

__all__ = ["configured", "recent"]

# Most folders and most names in an answer, and most bytes of a file of AWS profiles that is read.
_FOLDERS, _NAMES, _LARGE = 20, 50, 1 << 20
# Files of AWS profiles, and the variables that name others.
_PROFILES = {
    "AWS_CONFIG_FILE": "~/.aws/config",
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
}
# Variables that say which store is asked, or as whom.
_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "OBS_ACCESS_KEY_ID",
    "OBS_ENDPOINT",
    "AIS_ENDPOINT",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "AZURE_STORAGE_ACCOUNT",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_CONNECTION_STRING",
)


def recent(jobs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the folders of stores that jobs used, the newest first, without those that cannot be browsed.

    Parameters
    ----------
    jobs : iterable of dict
        As `nbdata.server.shown.shown` makes them.
    """
    newest = sorted(jobs, key=lambda job: float(job["created"]), reverse=True)
    places = (str(job[name]) for job in newest for name in ("source", "target"))
    folders = dict.fromkeys(_folder(place) for place in places if _can_be_browsed(place))
    return list(folders)[:_FOLDERS]


def _can_be_browsed(place: str) -> bool:
    if not is_url(place) or place.partition("://")[0] not in BROWSED:
        return False
    return redacted(place) == place and "…" not in place


def _folder(place: str) -> str:
    folder = glob_base(place) if has_glob(place) else place
    scheme, _, rest = folder.partition("://")
    head, slash, _ = rest.rpartition("/")
    return f"{scheme}://{head if slash else rest}/"


def configured() -> list[str]:
    """Return the names of profiles, logins and variables that are there; never a value.

    Those of rclone are named only: nbdata does not read its keys.
    """
    profiles = dict[str, None]()
    for variable, path in _PROFILES.items():
        profiles.update(dict.fromkeys(_sections(os.path.expanduser(os.environ.get(variable) or path))))
    names = [f"AWS profile {name}" for name in profiles]
    names += _logins()
    rclone = os.path.expanduser(os.environ.get("RCLONE_CONFIG") or "~/.config/rclone/rclone.conf")
    names += [f"rclone remote {name}" for name in _sections(rclone)]
    names += [name for name in _VARIABLES if os.environ.get(name)]
    return [printable(name) for name in names][:_NAMES]


def _logins() -> list[str]:
    """Return the logins of the command lines of Google and Azure; that a file is there says nothing of its keys."""
    google = os.path.expanduser(os.environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud")
    azure = os.path.expanduser(os.environ.get("AZURE_CONFIG_DIR") or "~/.azure")
    try:
        names = sorted(os.listdir(os.path.join(google, "configurations")))
    except OSError:
        names = []
    found = [
        f"gcloud configuration {name.removeprefix('config_')}" for name in names if name.startswith("config_")
    ]
    if os.path.isfile(os.path.join(google, "application_default_credentials.json")):
        found.append("Google's application default credentials")
    if os.path.isfile(os.path.join(azure, "azureProfile.json")):
        found.append("Azure login")
    return found


def _sections(path: str) -> list[str]:
    """Return the names of the profiles in a file; none if it cannot be read as one."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _LARGE:
            return []
        with open(path, encoding="utf-8", errors="replace") as file:
            parser.read_string(file.read(_LARGE))
    except (OSError, configparser.Error):
        return []
    names = (name.strip() for name in parser.sections())
    return [
        name.removeprefix("profile ").strip()
        for name in names
        if not name.startswith(("sso-session", "services"))
    ]
