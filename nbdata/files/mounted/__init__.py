"""A folder of a store as a folder of the disk (FUSE), for programs that open files in C; read only.

`folders` lists and remembers, `open_files` reads, `ahead` fetches the small files that come next, `calls` answers the
kernel's calls with them, `process` is the program that does all this, one for each mount. `mounts` starts and ends such
programs, and knows those that run. Nothing of nbdata reads through a mount.
"""
