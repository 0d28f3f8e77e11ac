//go:build unix && !linux

package sandbox

import "errors"

// madviseDontNeed promises zeroed pages on Linux alone.
func madviseDontNeed([]byte) error { return errors.ErrUnsupported }
