// Package machine measures what the figures of benchmarks are held against: the
// machine, not the project.
package machine

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkProcessor hashes a megabyte.
func BenchmarkProcessor(b *testing.B) {
	data := make([]byte, 1<<20)
	for b.Loop() {
		sha256.Sum256(data)
	}
}

// BenchmarkMemory makes and drops 4 MiB in pieces of 256 bytes, as a turn does.
func BenchmarkMemory(b *testing.B) {
	keep := make([][]byte, 1024)
	for b.Loop() {
		for i := range 1 << 14 {
			keep[i%len(keep)] = make([]byte, 256)
		}
	}
}

// BenchmarkDisk writes 16 KiB until they are on disk.
func BenchmarkDisk(b *testing.B) {
	file, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	data := make([]byte, 16<<10)
	for i := 0; b.Loop(); i++ {
		if _, err := file.WriteAt(data, int64(i%256*len(data))); err != nil {
			b.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}
