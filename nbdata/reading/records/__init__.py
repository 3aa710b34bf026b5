"""FFRecord files on the disk and in stores: which are meant, their headers, and the bytes of their samples."""
