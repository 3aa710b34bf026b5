"""Source and target of a copy: private buckets on real servers."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import nbdata
from nbdata.demo.server import EmbeddedServer
from tests.conftest import client_of

__all__ = ["MIB", "Side", "Sides", "copy"]

MIB = 1 << 20


class Side:
    """A private bucket on a server, with botocore access for checks."""

    def __init__(self, server: EmbeddedServer) -> None:
        self.server, self.bucket = server, f"copy-{secrets.token_hex(6)}"
        server.create_bucket(self.bucket)
        self.client = client_of(server)
        self.url = f"s3://{self.bucket}/"
        self.options = server.storage_options()

    def put(self, objects: dict[str, bytes], **more: Any) -> str:
        for key, data in objects.items():
            self.client.put_object(Bucket=self.bucket, Key=key, Body=data, **more)
        return self.url

    def put_parts(self, key: str, data: bytes, part: int, **more: Any) -> str:
        where = {"Bucket": self.bucket, "Key": key}
        upload = {**where, "UploadId": self.client.create_multipart_upload(**where, **more)["UploadId"]}
        parts = []
        for number, at in enumerate(range(0, len(data), part), 1):
            answer = self.client.upload_part(**upload, PartNumber=number, Body=data[at : at + part])
            parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        return str(self.client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})["ETag"])

    def keys(self) -> list[str]:
        found: list[str] = []
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket):
            found += [entry["Key"] for entry in page.get("Contents", [])]
        return found

    def get(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def head(self, key: str) -> dict[str, Any]:
        return dict(self.client.head_object(Bucket=self.bucket, Key=key))

    def objects(self) -> dict[str, bytes]:
        return {key: self.get(key) for key in self.keys()}

    def pending(self) -> list[str]:
        found = self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])
        return [upload["Key"] for upload in found]

    def close(self) -> None:
        self.client.delete_bucket(Bucket=self.bucket) if self.server.kind == "seaweedfs" else None
        self.client.close()


# Creates a side on a server of the given kind.
Sides = Callable[[str], Side]


def copy(source: Side, target: Side, below: str = "", **options: Any) -> nbdata.Report:
    return nbdata.copy(
        source.url,
        target.url + below,
        storage_options=source.options,
        target_options=target.options,
        quiet=True,
        **options,
    )
