"""Delete many S3 objects with one request."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import deque
from collections.abc import Iterable, Sequence

from nbdata.stores.s3.client import S3Client

__all__ = ["delete"]

# Characters that XML 1.0 cannot hold ("Char"), or that its parsers change ("End-of-Line Handling").
_NOT_IN_XML = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\ufffe\\uffff]")


def delete(client: S3Client, keys: Iterable[str]) -> None:
    """Delete objects, a thousand per request."""
    batch = deque[str]()
    for key in keys:
        if _NOT_IN_XML.search(key):
            _delete(client, [key])
            continue
        batch.append(key)
        if len(batch) == 1000:
            _delete(client, batch)
            batch.clear()
    if batch:
        _delete(client, batch)


def _delete(client: S3Client, keys: Sequence[str]) -> None:
    if len(keys) == 1:
        client.send("DELETE", keys[0], ok=(200, 204, 404)).close()
        return
    root = ET.Element("Delete")
    ET.SubElement(root, "Quiet").text = "true"
    for key in keys:
        ET.SubElement(ET.SubElement(root, "Object"), "Key").text = key
    body = ET.tostring(root, encoding="utf-8")
    failed = {item.findtext("Key") for item in client.xml("POST", "", {"delete": ""}, body).iterfind("Error")}
    unknown = failed - set(keys)  # a server that names keys in another way, or none
    for key in keys:  # one request each, so that the error names the key and the reason
        if key in failed or unknown:
            client.send("DELETE", key, ok=(200, 204, 404)).close()
