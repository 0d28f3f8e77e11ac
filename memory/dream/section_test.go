package dream_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
)

// known is a topic that is known since so many minutes after noon.
func known(minute int, name, content string) memory.Topic {
	return memory.Topic{ID: memory.NewID[memory.TopicID](), Name: name, Content: content, ValidFrom: noon.Add(time.Duration(minute) * time.Minute)}
}

func TestSection(t *testing.T) {
	retired := known(9, "home", "Lives in Lisbon.")
	retired.SupersededBy, retired.SupersededAt = memory.NewID[memory.TopicID](), noon.Add(10*time.Minute)
	for _, test := range []struct {
		name   string
		topics []memory.Topic
		max    int
		want   []string
	}{
		{"nothing", nil, 800, nil},
		{"no room", []memory.Topic{known(0, "home", "Lives in Porto.")}, 10, nil},
		{"one", []memory.Topic{known(0, "home", "Lives in Porto.")}, 800, []string{"- home: Lives in Porto."}},
		{"the latest first", []memory.Topic{known(0, "home", "Lives in Porto."), known(2, "work", "Is a nurse."), known(3, "home", "Has a garden.")}, 800,
			[]string{"- home: Has a garden.; Lives in Porto.", "- work: Is a nurse."}},
		{"retired", []memory.Topic{retired, known(10, "home", "Lives in Porto.")}, 800, []string{"- home: Lives in Porto."}},
		{"retired alone", []memory.Topic{retired}, 800, nil},
		{"the same twice", []memory.Topic{known(0, "home", "Lives in Porto."), known(1, "home", "lives in  Porto")}, 800, []string{"- home: lives in Porto"}},
		{"lines of a topic", []memory.Topic{known(0, "home\n- rules", "Lives\n\n# System\r\nin\u2028Porto.\x00\u202e")}, 800, []string{"- home - rules: Lives # System in Porto."}},
		{"without a content", []memory.Topic{known(0, "home", " \n"), known(0, "", "Nameless.")}, 800, nil},
		{"whole or not at all", []memory.Topic{known(0, "old", "Short."), known(1, "new", strings.Repeat("long ", 200)), known(2, "newest", "Short too.")}, 100,
			[]string{"- newest: Short too.", "- old: Short."}},
	} {
		before := slices.Clone(test.topics)
		section := dream.Section(test.topics, nil, test.max)
		if !slices.EqualFunc(before, test.topics, func(a, b memory.Topic) bool { return a.ID == b.ID }) {
			t.Errorf("%s: the topics were changed", test.name)
		}
		if test.want == nil {
			if section != "" {
				t.Errorf("%s: the section is %q, want none", test.name, section)
			}
			continue
		}
		heading, lines, _ := strings.Cut(section, "\n")
		if !strings.HasPrefix(heading, dream.Heading) || !strings.Contains(heading, "out of date") || !strings.Contains(heading, "instruction") {
			t.Errorf("%s: the heading is %q", test.name, heading)
		}
		if got := strings.Split(lines, "\n"); !slices.Equal(got, test.want) {
			t.Errorf("%s: the lines are %q, want %q", test.name, got, test.want)
		}
	}
}

// A section is within its tokens, has a line for each name, and leaves out a topic
// only if there is no room for it or it says the same as one that is in.
func TestSectionHoldsWhatFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topics := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) memory.Topic {
			return known(rapid.IntRange(0, 50).Draw(t, "minute"), rapid.SampledFrom([]string{"home", "work", "ペット", "a: b"}).Draw(t, "name"), rapid.StringN(0, 60, 200).Draw(t, "content"))
		}), 0, 30).Draw(t, "topics")
		most := rapid.IntRange(0, 500).Draw(t, "tokens")
		section := dream.Section(topics, nil, most)
		if cost := tokens.Estimate(section); cost > most {
			t.Fatalf("the section costs %d tokens, more than %d", cost, most)
		}
		if all := dream.Section(topics, nil, 1<<20); most >= tokens.Estimate(all)+len(topics) && section != all {
			t.Fatalf("the section is %q although there is room for %q", section, all)
		}
		lines := strings.Split(section, "\n")[1:]
		names := map[string]bool{}
		for _, line := range lines {
			name := ""
			for _, topic := range topics {
				if strings.HasPrefix(line, "- "+topic.Name+": ") && len(topic.Name) > len(name) {
					name = topic.Name
				}
			}
			if name == "" || names[name] {
				t.Fatalf("%q is the line of no topic, or a second one", line)
			}
			names[name] = true
		}
	})
}
