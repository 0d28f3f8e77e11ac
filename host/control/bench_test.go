package control_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/memory"
)

// BenchmarkBearer is what every request pays for its token: the file is read each
// time, so that a revocation holds at once.
func BenchmarkBearer(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tokens, err := control.OpenTokens(filepath.Join(b.TempDir(), "tokens.json"))
			if err != nil {
				b.Fatal(err)
			}
			var secret string
			for range n {
				user := memory.NewID[memory.UserID]()
				if secret, _, err = tokens.Create(user, control.UserScope(user), monday); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if _, err := tokens.Bearer(secret); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
