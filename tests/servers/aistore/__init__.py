"""A small AIStore: a gateway and nodes, each a process of its own, over real sockets and in front of files.

It was written from AIStore's own sources (github.com/NVIDIA/aistore, main of August 2026, cited as ``ais/proxy.go`` and
the like) and from its Python SDK (PyPI ``aistore`` 2.0, cited as ``sdk/…``). AIStore itself was not at hand. The SDK is
the judge of what is here: `tests.stores.ais.test_sdk`.
"""
