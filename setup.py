"""Builds in a temporary folder: in build/, modules that were deleted since would stay, and get into wheels."""

from tempfile import TemporaryDirectory

from setuptools import setup

with TemporaryDirectory() as folder:
    setup(options={"build": {"build_base": folder}})
