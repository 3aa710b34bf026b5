"""A loader service: one process reads and decodes batches, and several trainers get them ready, over ZeroMQ.

`serve` starts a service over any loader, `Client` is the trainer's side. `batches` turns a batch into bytes and back,
`dealing` decides who gets which, `address` keeps strangers out. There is no RDMA and nothing of the GPU here.
"""

from nbdata.loaders.service.client import Client
from nbdata.loaders.service.server import Service, serve

__all__ = ["Client", "Service", "serve"]
