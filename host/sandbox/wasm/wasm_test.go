package wasm_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

const preamble = "\x00asm\x01\x00\x00\x00"

func TestDecodeRefuses(t *testing.T) {
	for _, test := range []struct{ name, data, says string }{
		{"empty", "", "empty"},
		{"text", "#!/bin/sh\n", "not a WebAssembly module"},
		{"cut preamble", "\x00as", "truncated"},
		{"component", "\x00asm\x0d\x00\x01\x00", "component"},
		{"version 2", "\x00asm\x02\x00\x00\x00", "version"},
		{"cut section", preamble + "\x01\x7f", "truncated"},
		{"unknown section", preamble + "\x2a\x00", "section id 42"},
		{"4 G imports in 6 bytes", preamble + "\x02\x05\xff\xff\xff\xff\x0f", "import section"},
		{"4 G exports", preamble + "\x07\x05\xff\xff\xff\xff\x0f", "export section"},
		{"4 G functions", preamble + "\x03\x05\xff\xff\xff\xff\x0f", "function section"},
		{"4 G memories", preamble + "\x05\x05\xff\xff\xff\xff\x0f", "memory section"},
		{"name of 4 G", preamble + "\x00\x05\xff\xff\xff\xff\x0f", "custom section"},
		{"integer too long", preamble + "\x03\x06\x80\x80\x80\x80\x80\x00", "integer too l"},
		{"integer too large", preamble + "\x03\x05\xff\xff\xff\xff\x1f", "integer too l"},
		{"shared memory", preamble + "\x05\x04\x01\x03\x01\x01", "shared"},
		{"name not UTF-8", preamble + "\x00\x02\x01\xff", "UTF-8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := wasm.Decode([]byte(test.data))
			if !errors.Is(err, wasm.ErrMalformed) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want a malformed module and %q", err, test.says)
			}
		})
	}
}

func TestCustomSectionIsReplacedNotAdded(t *testing.T) {
	original := []byte(preamble + "\x05\x03\x01\x00\x02" + "\x00\x03\x01xy")
	parse := func(data []byte) *wasm.Module {
		t.Helper()
		m, err := wasm.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	once := parse(original).WithCustom("glovebox.manifest", []byte("first"))
	twice := parse(once).WithCustom("glovebox.manifest", bytes.Repeat([]byte("second "), 40))
	m := parse(twice)
	if got, ok := m.Custom("glovebox.manifest"); !ok || !strings.HasPrefix(string(got), "second ") || len(got) != 280 {
		t.Errorf("manifest section is %q, %v", got, ok)
	}
	if got, ok := m.Custom("x"); !ok || string(got) != "y" {
		t.Errorf("the other custom section is %q, %v", got, ok)
	}
	if len(m.Memories) != 1 || m.Memories[0].Min != 2 || m.Memories[0].Max != nil {
		t.Errorf("memories are %+v", m.Memories)
	}
	if got, want := m.Bare(), original[:len(original)-5]; !bytes.Equal(got, want) {
		t.Errorf("bare module is %x, want %x", got, want)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(preamble + "\x05\x03\x01\x00\x02" + "\x00\x03\x01xy"))
	f.Add([]byte(preamble + "\x02\x07\x01\x01a\x01b\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := wasm.Decode(data)
		if err != nil {
			if !errors.Is(err, wasm.ErrMalformed) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if !bytes.Equal(m.Encode(), data) {
			t.Fatal("decoding and encoding changed the module")
		}
		if err := m.Validate(); err != nil && !errors.Is(err, wasm.ErrInvalid) && !errors.Is(err, wasm.ErrMalformed) {
			t.Fatalf("error of another kind: %v", err)
		}
		embedded, err := wasm.Decode(m.WithCustom("n", []byte("d")))
		if err != nil {
			t.Fatalf("a module with a custom section added: %v", err)
		}
		if got, _ := embedded.Custom("n"); string(got) != "d" {
			t.Fatalf("custom section is %q", got)
		}
		if !bytes.Equal(embedded.Bare(), m.Bare()) {
			t.Fatal("adding a custom section changed the rest")
		}
	})
}
