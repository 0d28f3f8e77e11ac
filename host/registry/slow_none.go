//go:build !race

package registry

const slowdown = 1
