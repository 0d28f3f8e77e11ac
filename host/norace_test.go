//go:build !race

package host_test

// raceEnabled says that the race detector watches, which takes its time.
const raceEnabled = false
