package sandbox

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/abi"
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
