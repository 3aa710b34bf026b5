"""The data sets of mmdet3d: what their configuration says, read and not run, and which files they are made of."""
