"""What packing processes need, loaded once in the server that forks them."""

import webdataset.writer

import training_storage.training.shard_writer

__all__ = ["training_storage", "webdataset"]
