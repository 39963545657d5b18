"""Where the fields are that greenscope reads: in CPython's structs and in the kernel's."""
