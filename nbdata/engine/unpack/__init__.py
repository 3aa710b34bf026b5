"""untar_volumes: unpack archives in volumes, resume after an interruption, and delete volumes on the way if asked."""
