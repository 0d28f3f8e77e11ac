package assembly

import "github.com/gloveboxhq/glovebox/memory"

// Recovery is how far a prompt is cut down because it was refused as too long.
// Each stage goes further than the one before; nothing of it touches the store.
type Recovery int

// The stages.
const (
	// RecoverNothing is an ordinary prompt.
	RecoverNothing Recovery = iota
	// RecoverKeepTen keeps the summaries and the last 10 stored messages; more,
	// where a tool's call and result would part.
	RecoverKeepTen
	// RecoverKeepFour keeps the last 4, no summary, and a note that says so.
	RecoverKeepFour
	// RecoverShorten shortens the results of tools too, but those of the last
	// round.
	RecoverShorten
)

// ReasonRecovery explains what a stage leaves out.
const ReasonRecovery = "left out to make the prompt shorter"

const shortResult = 128

const RecoveryNote = "[Earlier messages are left out here because the conversation is too long. They are stored.]"

func (r Recovery) cut(items []memory.Item) (from int, summaries bool) { return 0, true }
