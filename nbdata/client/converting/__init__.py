"""Conversion of data sets into FFRecord files, in processes of the caller, because they run the caller's code.

`conversion` starts a process, shows its progress and ends it. `process` runs there: it loads a data set with `contract`
(or `mmdet3d`), decides with `layout` which files to make, and lets `workers` make them.
"""
