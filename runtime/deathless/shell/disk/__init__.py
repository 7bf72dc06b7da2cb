"""Files on the real file system: written so that they last, read with suspicion."""
