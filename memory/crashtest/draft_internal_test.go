package crashtest

import (
	"testing"

	"github.com/gloveboxhq/glovebox/memory"
)

// What has an event key is sent again as it was, or the harness would take its
// own carelessness for a fault of the store.
func TestDraftsWithKeysAreMadeAgain(t *testing.T) {
	session := memory.NewID[memory.SessionID]()
	keyed, seen := 0, map[string]uint64{}
	for seed := range uint64(2000) {
		var digests [2]string
		key := ""
		for i := range digests {
			d, err := draft(session, seed)
			if err != nil {
				t.Fatal(err)
			}
			if digests[i], err = draftDigest(d); err != nil {
				t.Fatal(err)
			}
			key = d.EventKey
		}
		if other, twice := seen[digests[0]]; twice {
			t.Errorf("seeds %d and %d say the same", other, seed)
		}
		if seen[digests[0]] = seed; key == "" {
			continue
		}
		if keyed++; digests[0] != digests[1] {
			t.Errorf("seed %d with a key differs when it is made again", seed)
		}
	}
	if keyed == 0 {
		t.Error("no draft has a key: this test looks at the wrong thing")
	}
}
