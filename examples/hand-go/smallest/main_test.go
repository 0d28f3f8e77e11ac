package main

import (
	"testing"
	"time"

	"github.com/gloveboxhq/glovebox/sdk/go/hand"
)

func TestAnswer(t *testing.T) {
	monday := time.Date(2026, 3, 23, 9, 0, 0, 0, time.UTC)
	got, err := answer(t.Context(), hand.Query{Prompt: "hello", Now: monday, Location: time.UTC})
	if err != nil || got != "You asked: hello\nIt is Monday 09:00." {
		t.Errorf("got %q, %v", got, err)
	}
}
