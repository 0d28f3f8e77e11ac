//go:build race

package assembly_test

// raced says that the race detector watches. It takes from pools at random, so
// that allocations cannot be counted.
const raced = true
