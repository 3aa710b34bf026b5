"""The data sets of mmdet3d: reads their configuration without running it, and lists their files."""
