//go:build !wasip1

package guest

import "github.com/gloveboxhq/glovebox/abi"

// Inside tells whether this program runs as a hand.
const Inside = false

// Query returns nothing: there is no host to ask.
func Query() []byte { return nil }

// Reply does nothing.
func Reply(string) {}

// Fail does nothing.
func Fail(string) {}

// Log does nothing.
func Log(int32, string) {}

// ReadResult copies nothing.
func ReadResult([]byte) int { return 0 }

func invoke(Function, []byte) int32 { return abi.KindDisabled.Code() }
