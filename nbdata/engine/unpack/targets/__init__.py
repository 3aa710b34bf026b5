"""Where an archive is unpacked to: a folder, a place in a store, or tar shards; and how far it got there."""
