//go:build !race

package assembly_test

// raced says that the race detector watches.
const raced = false
