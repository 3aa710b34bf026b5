"""PyTorch data sets: samples straight from a store, and streams through a bounded folder on the disk."""

from nbdata.loaders.pytorch.cache_stream import CacheStreamDataset
from nbdata.loaders.pytorch.sample_loader import SampleLoader
from nbdata.loaders.pytorch.samples import SampleDataset, SampleStream

__all__ = ["CacheStreamDataset", "SampleDataset", "SampleLoader", "SampleStream"]
