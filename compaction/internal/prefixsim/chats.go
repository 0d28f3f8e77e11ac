package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// set is a kind of chats.
type set struct {
	name  string
	chats [][]exchange
}

// exchange is what a user says and what comes of it.
type exchange struct {
	// pause is how long the user takes.
	pause  time.Duration
	said   string
	rounds []round
	answer string
}

// round is the calls of one message, with their results.
type round struct{ calls []call }

type call struct {
	name   string
	input  json.RawMessage
	result string
}

// seed makes every run the same.
const seed = 5

// The indices of generated sets.
const (
	shortTurns = iota
	longTurns
	withTools
	withPauses
)

// generated are the chats that nobody had: with short turns, with long ones,
// with tools, and with a user who comes back after hours.
func generated(exchanges int) []set {
	chat := func(stream uint64, next func(*teller) exchange) [][]exchange {
		t := &teller{rand.New(rand.NewPCG(seed, stream))}
		var c []exchange
		for range exchanges {
			e := next(t)
			if e.pause == 0 {
				e.pause = t.between(20, 90) * time.Second
			}
			c = append(c, e)
		}
		return [][]exchange{c}
	}
	short := func(t *teller) exchange {
		return exchange{said: t.words(5, 30), answer: t.words(10, 60)}
	}
	long := func(t *teller) exchange {
		return exchange{said: t.words(20, 120), answer: t.words(120, 300)}
	}
	return []set{
		shortTurns: {"short turns", chat(1, short)},
		longTurns:  {"long turns", chat(2, long)},
		withTools: {"tools", chat(3, func(t *teller) exchange {
			e := short(t)
			switch n := t.IntN(20); {
			case n == 0:
				// Many at once, more than a cache looks back over.
				e.rounds = []round{t.round(12, 24, 10)}
			case n < 12:
				for range 1 + t.IntN(3) {
					e.rounds = append(e.rounds, t.round(1, 3, 80))
				}
			}
			return e
		})},
		withPauses: {"pauses", chat(4, func(t *teller) exchange {
			e := short(t)
			if t.IntN(8) == 0 {
				e.pause = t.between(10, 600) * time.Minute
			}
			return e
		})},
	}
}

// teller makes texts up.
type teller struct{ *rand.Rand }

func (t *teller) between(least, most int) time.Duration {
	return time.Duration(least + t.IntN(most-least+1))
}

// vocabulary has no meaning; its words are as long as words are.
var vocabulary = strings.Fields(`the pump in hall four runs at seventy percent since monday and nobody knows why it stopped twice last week
	valve pressure seems fine but bearing temperature rises before each stop so please order another filter check whether supplier still
	delivers by friday note what maintenance said about warranty compare with readings from march then write short report for anna`)

func (t *teller) words(least, most int) string {
	var b strings.Builder
	for range t.between(least, most) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(vocabulary[t.IntN(len(vocabulary))])
	}
	b.WriteByte('.')
	return b.String()
}

func (t *teller) round(least, most, words int) (r round) {
	for range t.between(least, most) {
		r.calls = append(r.calls, call{"memory_search", json.RawMessage(fmt.Sprintf(`{"limit":%d,"query":%q}`, 1+t.IntN(20), t.words(2, 6))), t.words(words/2, words)})
	}
	return r
}

// chatOf lets the one who speaks first in a session be the user, and the other
// the assistant. Who says two things in a row has said one; the last word of a
// session that has no answer is left out.
func chatOf(c conversation) (chat []exchange, err error) {
	var at time.Time // of the last word
	for _, s := range c.Sessions {
		begin, err := time.Parse("3:04 pm on 2 January, 2006", s.Date)
		if err != nil {
			return nil, err
		}
		pause := time.Minute
		if !at.IsZero() && begin.After(at) {
			pause = begin.Sub(at)
		}
		at = begin
		var e exchange
		for i, t := range s.Turns {
			user := t.Speaker == s.Turns[0].Speaker
			if user && e.answer != "" {
				chat, e = append(chat, e), exchange{}
			}
			if e.said == "" {
				e.pause = pause
				pause = time.Minute
			}
			if user {
				e.said = joined(e.said, t.Text)
			} else {
				e.answer = joined(e.answer, t.Text)
			}
			if i > 0 {
				at = at.Add(time.Minute)
			}
		}
		if e.answer != "" {
			chat = append(chat, e)
		}
	}
	return chat, nil
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + "\n" + b
}
