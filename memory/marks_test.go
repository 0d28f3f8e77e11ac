package memory_test

import (
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/memory"
)

const (
	begin     = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
	end       = "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
	retryLine = "[Retry after the previous model attempt failed or timed out]"
	taskLine  = "[Internal task completion event]"
)

func TestMarkedSource(t *testing.T) {
	block := begin + "\nfound it\n" + end
	task := begin + "\n" + taskLine + "\nfound it\n" + end
	for _, c := range []struct {
		name, text string
		want       memory.Source
	}{
		{"nothing", "", ""},
		{"plain", "try again, please", ""},
		{"retry", retryLine, memory.SourceRetry},
		{"retry after other lines", "go on\r\n \u3000" + retryLine + "\ufeff\r\nplease", memory.SourceRetry},
		{"retry in the last line", "go on\n" + retryLine, memory.SourceRetry},
		{"retry quoted", "> " + retryLine, ""},
		{"retry within a line", retryLine + " you said", ""},
		{"retry behind a lone carriage return", "go on\r" + retryLine, ""},
		{"retry in other case", strings.ToLower(retryLine), ""},
		{"retry behind what is no white space", "\u0085" + retryLine, ""},
		{"inter-session", "[Inter-session message] from a\n" + block, memory.SourceInterSession},
		{"inter-session in other case and space", " [INTER-SESSION\u00a0\n message]" + block, memory.SourceInterSession},
		{"inter-session without a block", "[Inter-session message] from a", ""},
		{"inter-session with the block the wrong way round", "[Inter-session message]" + end + begin, ""},
		{"inter-session with a second end", "[Inter-session message]" + end + begin + end, memory.SourceInterSession},
		{"inter-session in the middle", "see [Inter-session message]\n" + block, ""},
		{"a blank inside the bracket", "[ Inter-session message]\n" + block, ""},
		{"no blank", "[Inter-sessionmessage]\n" + block, ""},
		{"task", task, memory.SourceTaskCompletion},
		{"task behind white space", "\u2028\t" + task, memory.SourceTaskCompletion},
		{"task behind a zero width space", "\u200b" + task, ""},
		{"task behind words", "see " + task, ""},
		{"task mark behind the block", block + "\n" + taskLine, memory.SourceTaskCompletion},
		{"task mark after other brackets", begin + "[[Internal [internal  TAS\u212A completion event]" + end, memory.SourceTaskCompletion},
		{"task mark with a next line control", begin + "[Internal\u0085task completion event]" + end, ""},
		{"task mark with a dotted capital", begin + "[\u0130nternal task completion event]" + end, ""},
		{"task mark cut off", begin + end + "[internal task completion event", ""},
		{"block in other case", strings.ToLower(begin) + taskLine + end, ""},
		{"block that does not end", begin + taskLine, ""},
		{"block without a mark", block, ""},
		// What opens a message says more than a line in it.
		{"task about a retry", begin + "\n" + taskLine + "\n" + retryLine + "\n" + end, memory.SourceTaskCompletion},
		{"unfinished block with a retry", begin + "\n" + retryLine, memory.SourceRetry},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, role := range []memory.Role{memory.RoleUser, memory.RoleSystem} {
				if got := memory.MarkedSource(role, c.text); got != c.want {
					t.Errorf("MarkedSource(%s, %q) = %q, want %q", role, c.text, got, c.want)
				}
			}
			for _, role := range []memory.Role{memory.RoleAssistant, memory.RoleTool} {
				if got := memory.MarkedSource(role, c.text); got != "" {
					t.Errorf("MarkedSource(%s, %q) = %q, want none", role, c.text, got)
				}
			}
		})
	}
}

// Texts that make a naive search look at everything again and again.
func BenchmarkMarkedSource(b *testing.B) {
	const size = 1 << 20
	for name, unit := range map[string]string{
		"brackets": "[internal task ", "blanks": "[internal" + strings.Repeat(" ", 1000), "begins": begin, "retries": retryLine + ".\n", "lines": "\n",
	} {
		b.Run(name, func(b *testing.B) {
			text := begin + strings.Repeat(unit, size/len(unit)) + end
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				memory.MarkedSource(memory.RoleUser, text)
			}
		})
	}
}
