package gaps

import "testing"

// Pages of a damaged file are refused, not read beyond their end.
func FuzzClearGap(f *testing.F) {
	page := make([]byte, 512)
	copy(page, []byte{pageTableLeaf, 0, 0, 0, 1, 1, 240, 0, 1, 240})
	copy(page[496:], []byte{13, 1})
	f.Add(int64(2), page)
	f.Add(int64(1), make([]byte, 1024))
	f.Fuzz(func(t *testing.T, number int64, page []byte) {
		if found, err := clearGap(number, page, true); err == nil && found {
			if again, err := clearGap(number, page, false); err != nil || again {
				t.Errorf("cleared, there is a gap still: %v, %v", again, err)
			}
		}
	})
}
