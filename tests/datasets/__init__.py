"""Tests of refluid.datasets, and the cases that its tests share."""
