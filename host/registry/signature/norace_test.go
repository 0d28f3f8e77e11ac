//go:build !race

package signature_test

const raceDetector = false
