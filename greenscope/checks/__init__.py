"""What greenscope needs of this machine and of a target, checked one by one.

`machine_checks()` and `target_checks(pid)` never raise for something that is missing: that is
their answer. (Nothing is imported here: an attach wants one module of this package only.)
"""
