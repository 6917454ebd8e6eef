"""Operators: state machines that emit asks and consume answers."""
