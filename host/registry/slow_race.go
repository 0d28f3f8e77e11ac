//go:build race

package registry

// slowdown is how much more a compilation may take where the race detector
// watches the compiler.
const slowdown = 10
