package tokenizer

import (
	"encoding/binary"
	"testing"
)

func TestCacheIsBounded(t *testing.T) {
	var c cache
	often := key{15: 1}
	c.put(often, 42)
	for i := range 5 * cachedCounts {
		var k key
		binary.BigEndian.PutUint64(k[:], uint64(i+1))
		c.put(k, i)
		if n, ok := c.get(k); !ok || n != i {
			t.Fatalf("entry %d: %d, %t", i, n, ok)
		}
		if kept := len(c.recent) + len(c.old); kept > cachedCounts {
			t.Fatalf("%d entries after %d", kept, i)
		}
		if i%1000 == 0 {
			if n, ok := c.get(often); !ok || n != 42 {
				t.Fatalf("what is asked for often is gone after %d: %d, %t", i, n, ok)
			}
		}
	}
	if _, ok := c.get(key{7: 1}); ok {
		t.Error("the first entry is still there")
	}
}
