package sandbox

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host/sandbox/wasm"
)

// What a guest is asked is what encoding/json makes of the query, byte by byte.
func TestQueriesAreEncodedLikeJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := func(name string) time.Time {
			zone := time.FixedZone("", rapid.IntRange(-50_000, 50_000).Draw(t, name+" zone")/60*60)
			return time.Unix(rapid.Int64Range(0, 1<<36).Draw(t, name), rapid.Int64Range(0, 999_999_999).Draw(t, name+" ns")).In(zone)
		}
		q := abi.Query{
			Prompt: rapid.String().Draw(t, "prompt"), From: at("from"), To: at("to"), Now: at("now"), Timezone: rapid.String().Draw(t, "zone"),
			MaxOutputTokens: rapid.Int().Draw(t, "tokens"), Subject: rapid.String().Draw(t, "subject"),
		}
		if rapid.Bool().Draw(t, "config") {
			q.Config = map[string]any{rapid.String().Draw(t, "key"): rapid.String().Draw(t, "value")}
		}
		want, err := json.Marshal(q)
		if err != nil {
			t.Skip(err)
		}
		if got, err := encodeQuery(q); err != nil || string(got) != string(want) {
			t.Fatalf("%s, %v; want %s", got, err, want)
		}
	})
}

// Joined segments leave the memory that the original ones left.
func TestJoinedSegmentsAreTheSameMemory(t *testing.T) {
	const size = 1 << 14
	image := func(t *rapid.T, m *wasm.Module) []byte {
		memory := make([]byte, size)
		for _, s := range m.Data {
			at, ok := s.Place.ConstantI32()
			if !ok {
				t.Fatal("a place that is not constant")
			}
			copy(memory[at:], s.Bytes)
		}
		return memory
	}
	rapid.Check(t, func(t *rapid.T) {
		data := wasm.AppendU32(nil, uint32(rapid.IntRange(0, 30).Draw(t, "segments")))
		at := 0
		for range int(data[0]) {
			switch rapid.IntRange(0, 5).Draw(t, "place") {
			case 0:
				at = rapid.IntRange(0, size-64).Draw(t, "anywhere")
			default:
				at = min(at+rapid.IntRange(0, 600).Draw(t, "gap"), size-64)
			}
			bytes := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes")
			data = wasm.AppendS64(append(data, 0, byte(wasm.OpI32Const)), int64(at))
			data = append(wasm.AppendU32(append(data, byte(wasm.OpEnd)), uint32(len(bytes))), bytes...)
			at += len(bytes)
		}
		module := append([]byte("\x00asm\x01\x00\x00\x00\x05\x03\x01\x00\x01\x0b"), wasm.AppendU32(nil, uint32(len(data)))...)
		m, err := wasm.Decode(append(module, data...))
		if err != nil {
			t.Fatal(err)
		}
		want := image(t, m)
		joinSegments(m)
		joined, err := wasm.Decode(m.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if string(image(t, joined)) != string(want) || len(joined.Data) > len(m.Data) {
			t.Fatalf("%d segments, joined to %d, leave another memory", len(m.Data), len(joined.Data))
		}
	})
}

// A lock on a file that was removed, and made anew by another process, is none.
func TestLockOfWhatIsGone(t *testing.T) {
	dir := t.TempDir()
	lock, ok := tryAlone(dir)
	if !ok || !holds(lock) {
		t.Fatal("it cannot be locked")
	}
	defer lock.Unlock()
	if err := os.Remove(lock.Path()); err != nil {
		t.Fatal(err)
	}
	if holds(lock) {
		t.Error("it holds what is gone")
	}
	if err := os.WriteFile(lock.Path(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if holds(lock) {
		t.Error("it holds what another made")
	}
}
