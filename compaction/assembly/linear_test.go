package assembly_test

import (
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/compaction/assembly"
)

// A6: half of 3,200 items has to go. That takes some milliseconds; to build the
// prompt anew for each that might go takes minutes.
func TestEvictionTakesLinearTime(t *testing.T) {
	for name, tools := range map[string]bool{"rows": false, "tools": true} {
		in := benchInput(3200, 8, tools, half)
		began := time.Now()
		_, report, err := assembly.Assemble(in)
		if took := time.Since(began); err != nil || took > 2*time.Second {
			t.Errorf("%s: it took %v, %v", name, took, err)
		}
		if report.OverBudget || report.Totals.Live == 0 {
			t.Errorf("%s: half of it was to go for what is live: %+v", name, report.Totals)
		}
	}
}
