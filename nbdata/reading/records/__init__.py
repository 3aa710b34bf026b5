"""FFRecord files on the disk and in stores: the files of a source, their headers, and the bytes of their samples."""
