package host_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/registry"
)

// What [engine] says bounds the code that hands have in memory, and the cache.
func TestEngineIsBounded(t *testing.T) {
	compiler, err := registry.Self()
	if err != nil {
		t.Fatal(err)
	}
	calendars := t.TempDir()
	calendarDir(t, calendars, "standup")
	calendar := map[string]host.HandConfig{"calendar": {Grant: host.GrantConfig{Files: map[string]string{"calendars": calendars}}}}
	path, digest := promptHand(t, false)
	prompt := map[string]host.HandConfig{"prompt": {Module: path, Digest: digest}}
	cache := t.TempDir()

	for _, step := range []struct {
		engine host.EngineConfig
		hands  map[string]host.HandConfig
		// In bytes; what the calendar takes is large.
		code, cached func(int64) bool
	}{
		{host.EngineConfig{CodeMiB: 1}, calendar, small, large},
		{host.EngineConfig{}, calendar, large, large},
		{host.EngineConfig{CacheMiB: 1}, prompt, whatever, small},
	} {
		before := machineCode(t)
		h, err := host.New(t.Context(), host.Config{Data: t.TempDir(), Cache: cache, Compiler: compiler, Engine: step.engine, Hands: step.hands})
		if err != nil {
			t.Fatal(err)
		}
		// Code that was let go of stays until garbage is collected.
		code := machineCode(t) - before
		for tries := 0; !step.code(code) && tries < 50; tries++ {
			runtime.GC()
			code = machineCode(t) - before
		}
		if !step.code(code) {
			t.Errorf("%+v: %d KiB of code are loaded", step.engine, code>>10)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		if cached := sizeOf(t, cache); !step.cached(cached) {
			t.Errorf("%+v: %d KiB are in the cache", step.engine, cached>>10)
		}
	}
}

func small(bytes int64) bool { return bytes < 1<<20 }
func large(bytes int64) bool { return bytes > 4<<20 }
func whatever(int64) bool    { return true }

// machineCode is how much memory of this process, of no file, can be executed.
func machineCode(t *testing.T) (bytes int64) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) != 5 || !strings.Contains(fields[1], "x") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		begin, err1 := strconv.ParseInt(from, 16, 64)
		end, err2 := strconv.ParseInt(to, 16, 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("/proc/self/maps: %s", line)
		}
		bytes += end - begin
	}
	return bytes
}

func sizeOf(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return bytes
}
