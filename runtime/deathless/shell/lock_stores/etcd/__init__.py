"""The lock in etcd and our client of it."""
