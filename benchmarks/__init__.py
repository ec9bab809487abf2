"""Measurements that anyone can run; they need torch, numpy and, for the reference, transformers."""
