"""What the manifest and the errors say of sources: processes that read numbered input from outside; pure."""
