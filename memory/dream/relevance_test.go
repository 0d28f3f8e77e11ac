package dream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/dream"
)

// Where there is no room for all, what has to do with the input goes in, however
// long ago it was learned; where there is, nothing changes.
func TestSectionOfWhatIsRelevant(t *testing.T) {
	var topics []memory.Topic
	topics = append(topics, known(0, "allergy", "Is allergic to peanuts. Whoever eats with them has to know where the red bag with what helps is kept."))
	for i := range 200 {
		topics = append(topics, known(i+1, fmt.Sprintf("pump %d", i), fmt.Sprintf("The pump in hall %d is green and is never to be painted.", i)))
	}
	const most = 300
	about := "May I give them PEANUT butter? Or is the pump what worries you?"
	if section := dream.Section(topics, nil, most); strings.Contains(section, "peanuts") {
		t.Fatalf("there is room for all: %s", section)
	}
	section := dream.Section(topics, dream.ByWords(topics, about), most)
	if !strings.Contains(section, "Is allergic to peanuts.") {
		t.Errorf("by words: %s", section)
	}
	// What tells nothing apart leaves the order as it is.
	if got, want := dream.Section(topics, dream.ByWords(topics, "zebra"), most), dream.Section(topics, nil, most); got != want {
		t.Errorf("by no word: %s", got)
	}
	few := topics[:3]
	if got, want := dream.Section(few, dream.ByWords(few, about), most), dream.Section(few, nil, most); got != want || got == "" {
		t.Errorf("with room for all: %s", got)
	}
	scores := dream.ByWords(topics, strings.Repeat("peanuts and pumps ", 1<<17))
	if best := slices.Index(scores, slices.Max(scores)); len(scores) != len(topics) || best != 0 {
		t.Errorf("a long text has the scores %v", scores[:2])
	}
}

// angles embeds by whether a text is of food.
type angles struct {
	err    error
	broken [][]float32
}

func (a angles) Embed(_ context.Context, texts []string) ([][]float32, error) {
	if a.err != nil || a.broken != nil {
		return a.broken, a.err
	}
	var vectors [][]float32
	for _, text := range texts {
		if strings.Contains(text, "peanut") || strings.Contains(text, "cashew") {
			vectors = append(vectors, []float32{1, 0.1})
		} else {
			vectors = append(vectors, []float32{0, 3})
		}
	}
	return vectors, nil
}

func TestByMeaning(t *testing.T) {
	topics := []memory.Topic{known(0, "allergy", "Is allergic to peanuts."), known(1, "pump", "Is green.")}
	scores, err := dream.ByMeaning(t.Context(), angles{}, topics, "Do they eat cashews?")
	if err != nil || len(scores) != 2 || scores[0] <= scores[1] || scores[0] > 1.0001 {
		t.Errorf("got %v, %v", scores, err)
	}
	down := errors.New("down")
	if _, err := dream.ByMeaning(t.Context(), angles{err: down}, topics, "x"); !errors.Is(err, down) {
		t.Errorf("an embedder that is down: %v", err)
	}
	for name, vectors := range map[string][][]float32{
		"none": {}, "too few": {{1}, {1}}, "of two lengths": {{1, 0}, {1, 0}, {1}},
	} {
		if _, err := dream.ByMeaning(t.Context(), angles{broken: vectors}, topics, "x"); err == nil {
			t.Errorf("vectors %s are taken", name)
		}
	}
	if scores, err := dream.ByMeaning(t.Context(), angles{broken: [][]float32{{0, 0}, {1, 0}, {0, 1}}}, topics, "x"); err != nil || scores[0] != 0 || scores[1] != 0 {
		t.Errorf("of no direction: %v, %v", scores, err)
	}
}
