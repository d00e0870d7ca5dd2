"""Worker processes: programs of their own that do calls for another process, over shared memory.

`process` has the memory that processes share and what they tell each other, and starts and ends a
worker; `crew` says what a task is and divides tasks among several workers. Nothing here knows what
the tasks do: `lccodec.chain.save.background` has the program,
`lccodec.chain.save.encode` and `lccodec.chain.read.crew` have the tasks.

A worker is started by its own command line, not by a fork, and imports nothing of the program that
starts it. It has one descriptor, a socket. It ends when the other end of the socket is closed, so
it never outlives the process it works for. Shared memory has no name in any file system: the system
frees it when the last process that maps it is gone.
"""
