"""FFRecord files with the names and meanings of the ffrecord library; `nbdata.ffrecord` is the public face."""
