"""Conversion of data sets into FFRecord files, in processes of the caller's own: what they run is the caller's code.

`conversion` begins a process, shows how far it is and ends it. `process` is what runs there: it loads a data set by
`contract` (or `mmdet3d`), decides with `layout` what files to make, and lets `workers` make them.
"""
