"""untar_volumes: unpack archives in volumes, resume after an interruption, and delete volumes on the way if asked.

`volumes` finds and reads the volumes, `stream` makes members of them, and `targets` puts the members into a folder, a
store or shards. The modules here plan a command, and keep the records of what an archive has written.
"""
