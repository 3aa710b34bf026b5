"""Names of files that contain checksums."""

from __future__ import annotations

import pytest

from nbdata.integrity.checksum_names import algorithm_in, is_checksum_file, is_manifest, owner_of


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("MD5SUMS", "md5"),
        ("d/md5sum.txt", "md5"),
        ("md5sums.txt", "md5"),
        ("SHA256SUMS", "sha256"),
        ("sha1sum.txt", "sha1"),
        ("sha256.txt", "sha256"),
        ("manifest-md5.txt", "md5"),
        ("SHA512SUMS", "sha512"),
        ("crc64nvmesum.txt", "crc64nvme"),
        ("manifest-sha512.txt", "sha512"),
        ("checksums.txt", None),
        ("CHECKSUM", None),
        ("CHECKSUM-sha256.txt", "sha256"),
        ("Fedora-38-x86_64-CHECKSUM", None),
    ],
)
def test_manifests_are_known_by_name_with_their_algorithm(name, algorithm):
    assert is_manifest(name)
    assert is_checksum_file(name)
    assert algorithm_in(name) == algorithm


@pytest.mark.parametrize(
    ("name", "owner", "algorithm"),
    [
        ("d/vol-00.md5", "d/vol-00", "md5"),
        ("vol-00.MD5", "vol-00", "md5"),
        ("a.tar.gz.sha256sum", "a.tar.gz", "sha256"),
        ("a.sha1", "a", "sha1"),
        ("a.crc32c", "a", "crc32c"),
        ("a.crc32", "a", "crc32"),
        ("a.crc64nvme", "a", "crc64nvme"),
        ("a.SHA512", "a", "sha512"),
        ("md5-of.sha256", "md5-of", "sha256"),
        ("a\nb.md5", "a\nb", "md5"),
    ],
)
def test_a_sidecar_is_known_by_its_suffix_with_its_owner(name, owner, algorithm):
    assert is_checksum_file(name)
    assert owner_of(name) == owner
    assert algorithm_in(name) == algorithm


@pytest.mark.parametrize("name", ["vol-00", ".md5", "d.md5/a", "md5", "notes-md5.pdf", "my-md5sums.txt.gz"])
def test_data_is_not_taken_for_checksums(name):
    assert not is_checksum_file(name)
    assert owner_of(name) is None
