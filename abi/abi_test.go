package abi_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/abi"
)

func TestErrorMatchesItsKindAndItsCause(t *testing.T) {
	cause := errors.New("disk on fire")
	err := fmt.Errorf("ask: %w", &abi.Error{Hand: "calendar", Kind: abi.KindTimeout, Text: "query timed out after 30s", Err: cause})
	if !errors.Is(err, abi.KindTimeout) || errors.Is(err, abi.KindTrap) || !errors.Is(err, cause) {
		t.Errorf("%v does not match what it wraps", err)
	}
	if got, want := err.Error(), `ask: hand "calendar": query timed out after 30s: disk on fire`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if abi.KindOf(err) != abi.KindTimeout || abi.KindOf(abi.KindDenied) != abi.KindDenied || abi.KindOf(cause) != "" {
		t.Error("KindOf")
	}
}

// The codes are frozen with the contract: this table may only grow.
func TestGuestCodes(t *testing.T) {
	for code, kind := range map[int32]abi.Kind{
		-1: "bad_pointer", -2: "not_granted", -3: "bad_request", -4: "too_large", -5: "too_many_calls",
		-6: "quota_exceeded", -7: "denied", -8: "not_found", -9: "timeout", -10: "disabled", -11: "unavailable",
	} {
		if kind.Code() != code || abi.KindOfCode(code) != kind {
			t.Errorf("%s has code %d, and %d is %q", kind, kind.Code(), code, abi.KindOfCode(code))
		}
	}
	for _, code := range []int32{0, 1, -12, -1 << 31} {
		if abi.KindOfCode(code) != "" {
			t.Errorf("code %d is %q", code, abi.KindOfCode(code))
		}
	}
	if abi.KindTrap.Code() != 0 {
		t.Error("a guest never meets its own trap")
	}
}

func TestLimits(t *testing.T) {
	l, err := abi.Limits{Timeout: time.Second}.WithDefaults()
	if err != nil || l.Timeout != time.Second || l.MemoryBytes != 64<<20 || l.OutputBytes != 64<<10 {
		t.Errorf("got %+v, %v", l, err)
	}
	for name, l := range map[string]abi.Limits{
		"timeout":      {Timeout: time.Hour},
		"memory_bytes": {MemoryBytes: -1},
		"calls":        {Calls: 1 << 30},
	} {
		if _, err := l.WithDefaults(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestCapabilityModules(t *testing.T) {
	for _, c := range abi.Capabilities() {
		if got, ok := abi.CapabilityOf(c.Module()); !ok || got != c {
			t.Errorf("module %q of %q is of %q", c.Module(), c, got)
		}
	}
	if _, ok := abi.CapabilityOf(abi.ModuleCore); ok {
		t.Error("the core module is no capability")
	}
}
