"""What only signs a URL is told apart from what chooses an object, for each store's form."""

from __future__ import annotations

import pytest

from nbdata.signed_urls import without_signature

#: The parameters of signed URLs, as each store's documentation or client writes them.
SIGNED = {
    "AWS, version 4": "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIA%2F2026%2Fus-east-1%2Fs3%2Faws4_request"
    "&X-Amz-Date=20261127T120000Z&X-Amz-Expires=3600&X-Amz-SignedHeaders=host&X-Amz-Security-Token=t&X-Amz-Signature=0a",
    "AWS, version 2": "AWSAccessKeyId=AKIA&Signature=a%2Bb%3D&x-amz-security-token=t&Expires=1795786692",
    "OBS": "AccessKeyId=K&Expires=1795786692&Signature=a%3D&x-obs-security-token=t",
    "Google, version 4": "X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Credential=c&X-Goog-Date=d&X-Goog-Expires=900"
    "&X-Goog-SignedHeaders=host&X-Goog-Signature=0a",
    "Google, version 2": "GoogleAccessId=me%40p.iam.gserviceaccount.com&Expires=1795786692&Signature=a%3D",
    "Azure, account": "sv=2026-02-06&ss=b&srt=co&sp=rl&se=2026-11-28T00%3A00%3A00Z&st=2026-11-27&spr=https"
    "&sip=10.0.0.1&sig=a%3D",
    "Azure, user": "skoid=1&sktid=2&skt=3&ske=4&sks=b&skv=5&sv=2026-02-06&se=6&sr=b&sp=r&scid=7&sdd=1&saoid=8&sig=a%3D",
    "Alibaba, version 1": "OSSAccessKeyId=K&Expires=1795786692&Signature=a%3D&security-token=t",
    "Alibaba, version 4": "x-oss-signature-version=OSS4-HMAC-SHA256&x-oss-credential=c&x-oss-date=d&x-oss-expires=9"
    "&x-oss-signature=0a&x-oss-security-token=t",
    "Tencent": "q-sign-algorithm=sha1&q-ak=K&q-sign-time=1%3B2&q-key-time=1%3B2&q-header-list=host&q-url-param-list="
    "&q-signature=0a&x-cos-security-token=t",
    "Volcano": "X-Tos-Algorithm=TOS4-HMAC-SHA256&X-Tos-Credential=c&X-Tos-Date=d&X-Tos-Expires=9&X-Tos-Signature=0a",
    "CloudFront": "Expires=1795786692&Signature=a~b__&Key-Pair-Id=K&Policy=p_",
}


@pytest.mark.parametrize("query", SIGNED.values(), ids=SIGNED)
def test_what_signs_does_not_count_and_the_rest_does(query: str) -> None:
    assert without_signature(f"https://h:1/a/x%20y.bin?{query}") == "https://h:1/a/x%20y.bin"
    assert without_signature(f"https://h/x?versionId=7&{query}") == "https://h/x?versionId=7"
    assert without_signature(f"https://h/x?{query}&download") == "https://h/x?download"


@pytest.mark.parametrize(
    "place",
    [
        "https://h/x?expires=soon&policy=open&signature=mine",
        "https://h/x?sig=3&page=2",
        "https://h/x?se=1&sv=2",
        "https://h/x?token=t",
        "https://h/x?x-amz-meta=1",
        "https://h/x",
        "s3://bucket/x?X-Amz-Signature=1",
        "/data/x?X-Amz-Signature=1",
        "",
    ],
)
def test_the_same_words_elsewhere_are_left(place: str) -> None:
    assert without_signature(place) == place


def test_what_chooses_other_bytes_counts_beside_a_signature() -> None:
    query = f"{SIGNED['Alibaba, version 4']}&x-oss-process=image%2Fresize%2Cw_10"
    assert without_signature(f"https://h/x?{query}") == "https://h/x?x-oss-process=image%2Fresize%2Cw_10"
