"""Find data, checkpoints and loader settings with the storage contract alone; run it on a node."""

# ruff: noqa: INP001, T201 -- a script that prints

from training_storage.training import StorageContract

contract = StorageContract.read()  # /etc/training-storage/storage.json, or what TRAINING_STORAGE_CONTRACT names

print("training data      ", contract.location("datasets"))
print("base models        ", contract.location("models"))
print("write checkpoints  ", contract.checkpoints.write_to)
print("every              ", contract.checkpoints.interval_minutes, "minutes,", contract.checkpoints.mode)
print("keep the newest    ", contract.checkpoints.kept)
print("archive to         ", contract.checkpoints.durable_uri)
print("every              ", contract.checkpoints.durable_interval_minutes, "minutes")

# torch.utils.data.DataLoader(..., num_workers=workers, prefetch_factor=prefetch), in each rank
workers, prefetch = contract.loader.workers_per_accelerator, contract.loader.prefetch_factor
print("loader             ", workers, "workers for each accelerator,", prefetch, "batches ahead of each")
print("ranged requests of ", contract.loader.part_size_mib, "MiB; local cache in", contract.loader.cache_path)
