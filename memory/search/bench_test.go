package search_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/search"
)

// What ranking costs beside the store's own search, by the length of the
// messages in bytes: every candidate's text is read again.
func BenchmarkRank(b *testing.B) {
	for _, size := range []int{200, 2_000, 20_000, 100_000} {
		found := memory.WordHits{Messages: 1000, Frequency: []int{search.MaxHits}}
		for i := range search.MaxHits {
			text := strings.Repeat(fmt.Sprintf("the kiln of day %d burns ", i), size/24)
			found.Hits = append(found.Hits, memory.WordHit{Message: memory.Message{Seq: int64(i), Blocks: []memory.Block{memory.Text(text)}}})
		}
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			for b.Loop() {
				if _, err := search.Messages(b.Context(), &recorder{hits: found}, memory.UserID{}, search.Question{Text: "kiln"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
