"""An embedded S3 server and a real sample data set, for the demo, the tutorials and the tests.

`server` starts a server on loopback, `programs` knows which servers there are and how they are
called, `supervisor` is the small process that ends a server with its owner, and `dataset` makes a
set of tar.gz volumes with md5 sidecars from the files of the running Python.
"""
