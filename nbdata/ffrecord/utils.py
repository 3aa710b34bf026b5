"""``ffrecord.utils`` of the ffrecord library: `dump`."""

from nbdata.client.records.dumping import dump

__all__ = ["dump"]
