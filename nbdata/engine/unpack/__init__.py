"""untar_volumes: archives in volumes are unpacked, go on where they were broken off, and volumes may go meanwhile."""
