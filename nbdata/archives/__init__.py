"""Archives as streams: volumes joined, decompressed, and read member by member.

This room knows bytes and names only. The engine hands it names to choose from and volumes to open,
and writes the members itself; nothing here touches a disk or a store::

    choose_set -> JoinedStream -> Readahead -> open_decompressed -> Readahead -> read_members
"""
