"""Ordinary Python services that survive the death of any process.

Importing this package costs nothing: what a service author needs is loaded when it is first named.
"""
