"""Archives as streams: join the volumes, decompress them and read them member by member.

This package knows only bytes and names. The engine gives it names to choose from and volumes to open, and writes
the members itself. Nothing here touches a disk or a store::

    choose_set -> JoinedStream -> Readahead -> open_decompressed -> Readahead -> read_members
"""
