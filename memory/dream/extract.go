package dream

import (
	"context"

	"github.com/gloveboxhq/glovebox/memory"
)

// Extract returns earlier with what the messages add to it. It never fails: when
// the model errs, answers nothing or what cannot be read, it returns earlier as it
// is, and learned is false. An answer that the output limit cut off is asked for
// again with twice the limit. What a source does not bear out is dropped: each
// thing cites messages of the run whose source is the user.
func (d *Dreamer) Extract(ctx context.Context, messages []memory.Message, earlier memory.Learnings) (all memory.Learnings, learned bool) {
	return earlier, false
}

// AfterTurn extracts what is new in a session if enough has come in since the last
// time. It is for the background: it returns when that is over.
func (d *Dreamer) AfterTurn(ctx context.Context, at Place) error { return nil }

// Mini extracts from messages that are about to leave the prompt, exactly those of
// them that were not looked at, and merges what it learned into the topics. It is
// bounded by MiniTimeout; what is extracted by then stays and is merged by the next
// dream. Changed says that the topics are not what they were. It never fails.
func (d *Dreamer) Mini(ctx context.Context, at Place, leaving []memory.Message) (changed bool) {
	return false
}
