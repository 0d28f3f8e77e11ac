package main

import "runtime/debug"

// The host gives a hand 64 MiB. Left to itself the collector lets the heap
// double, and what it asks for in vain ends the query.
func init() { debug.SetMemoryLimit(48 << 20) }
