"""The cache of mounts on the disk: blocks of files, and listings, which are read also when the store cannot be reached.

`version_file` is one version of an object on the disk, `folder` the folder of all of them and their bound, `room` what
the disk and its limits allow. `cache` reads them for one mount, with a `kept_version` for each version that is open,
and writes them behind the readers (`writing`). `window` gives an open file its bytes, `listings` keeps listings, and
`reach` knows whether the store answers. Mounts use it without an agent; other files
that are read through a cache (`nbdata.files.cached`) keep whole objects, which an agent fetches.
"""
