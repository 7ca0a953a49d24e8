"""Remote file systems."""

from paddle.fluid.contrib.utils import hdfs_utils
from paddle.fluid.contrib.utils.hdfs_utils import HDFSClient, multi_download, multi_upload

__all__ = ["HDFSClient", "hdfs_utils", "multi_download", "multi_upload"]
