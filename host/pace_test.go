package host_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gloveboxhq/glovebox/host"
)

// Ten thousand calls that want to be made at once: never more than so many go on, in no
// minute do more begin than may, all are made as soon as that, in the order in which
// they came, and one that is given up is none.
func TestPace(t *testing.T) {
	for name, test := range map[string]struct {
		model      host.ModelConfig
		took       time.Duration
		perMinute  int
		atOnce     int
		withinLess time.Duration
	}{
		"by default, of answers at once":     {host.ModelConfig{}, 0, 120, 1, 10_000 * time.Minute / 120},
		"by default, of slow answers":        {host.ModelConfig{}, 8 * time.Second, 120, 4, 10_000 / 4 * 8 * time.Second},
		"of slow answers, with a small rate": {host.ModelConfig{BackgroundCalls: 16, BackgroundCallsPerMinute: 6}, 45 * time.Second, 6, 5, 10_000 * time.Minute / 6},
		"with one call":                      {host.ModelConfig{BackgroundCalls: 1, BackgroundCallsPerMinute: 1_000_000}, time.Second, 60, 1, 10_000 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const calls = 10_000
				admit := host.Pace(test.model)
				var mu sync.Mutex
				var began []time.Time
				var order []int
				going, most := 0, 0
				start := time.Now()
				var group sync.WaitGroup
				gone, leave := context.WithCancel(t.Context())
				for i := range calls {
					group.Go(func() {
						release, err := admit(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						began, order = append(began, time.Now()), append(order, i)
						going++
						most = max(most, going)
						mu.Unlock()
						time.Sleep(test.took)
						mu.Lock()
						going--
						mu.Unlock()
						release()
					})
					synctest.Wait()
					if i%100 == 0 {
						group.Go(func() {
							if _, err := admit(gone); !errors.Is(err, context.Canceled) {
								t.Errorf("who has gone: %v", err)
							}
						})
					}
				}
				synctest.Wait()
				leave()
				group.Wait()
				if most != test.atOnce {
					t.Errorf("%d calls at once, want %d", most, test.atOnce)
				}
				for i := range began {
					if later := i + test.perMinute; later < len(began) && began[later].Sub(began[i]) < time.Minute {
						t.Fatalf("calls %d to %d began within %v", i, later, began[later].Sub(began[i]))
					}
					if order[i] != i {
						t.Fatalf("call %d is number %d", order[i], i)
					}
				}
				if took := time.Since(start); took > test.withinLess+time.Minute {
					t.Errorf("all together took %v, want %v", took, test.withinLess)
				}
			})
		})
	}
}
