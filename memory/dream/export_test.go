package dream

import "github.com/gloveboxhq/glovebox/memory"

// IsWanted reports whether somebody waits for a session that is looked at.
func (d *Dreamer) IsWanted(session memory.SessionID) bool { return d.extracting.wanted(session) }
