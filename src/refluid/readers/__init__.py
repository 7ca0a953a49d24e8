"""Input data: readers in threads and processes, batches, synthetic datasets."""
