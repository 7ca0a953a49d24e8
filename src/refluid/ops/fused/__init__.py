"""Ops that real Fluid's inference passes make of several others; saved models contain them."""
