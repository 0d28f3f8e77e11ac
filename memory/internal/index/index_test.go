package index_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gloveboxhq/glovebox/memory/internal/index"
	"pgregory.net/rapid"
)

func TestTerms(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", ""},
		{" ,.!  ", ""},
		{"The Walking dogs WALKED", "the walk dog walk"},
		{"route 66, x86_64", "rout 66 x86 64"},
		{"Café Übergrößen Ποσειδῶν ёлка", "cafe ubergroßen ποσειδων елка"},
		{"don't", "don t"},
		{"東京都に行く now", "東京 京都 都に に行 行く now"},
		{"火", "火"},
		{"abc東京def", "abc 東京 def"},
		{"한국어 문장", "한국어 문장"},
		{"नमस्ते", "नमस्ते"},
		{"ﬁne ＡＢＣ", "fine abc"},
		{"\xff\xfeok\x00go", "ok go"},
		{strings.Repeat("a", 100), strings.Repeat("a", 64)},
	} {
		var tokenizer index.Tokenizer
		for range 2 { // the second time from memory
			if got := strings.Join(tokenizer.Terms(test.text), " "); got != test.want {
				t.Errorf("terms of %q: %q, want %q", test.text, got, test.want)
			}
		}
	}
}

func TestTermsAreBounded(t *testing.T) {
	var tokenizer index.Tokenizer
	if n := len(tokenizer.Terms(strings.Repeat("a ", index.MaxLength+10))); n != index.MaxLength {
		t.Errorf("%d terms, want %d", n, index.MaxLength)
	}
	if n := len(tokenizer.Terms(strings.Repeat("東", index.MaxLength+10))); n != index.MaxLength {
		t.Errorf("%d pairs, want %d", n, index.MaxLength)
	}
}

func FuzzTerms(f *testing.F) {
	f.Add("The Walking dogs' 東京都 Ünïcödé \xff")
	f.Fuzz(func(t *testing.T, text string) {
		var tokenizer index.Tokenizer
		for _, term := range tokenizer.Terms(text) {
			if term == "" || len(term) > index.MaxTerm {
				t.Fatalf("term %q", term)
			}
		}
	})
}

// corpus draws documents of a few sessions in the order in which they were
// said, of few words, so that lists are long.
func corpus(most int) *rapid.Generator[[]index.Document] {
	return rapid.Custom(func(t *rapid.T) []index.Document {
		var list []index.Document
		seqs := make(map[byte]int64)
		vocabulary := rapid.SampledFrom([]int{3, 30, 1000}).Draw(t, "vocabulary")
		for range rapid.IntRange(0, most).Draw(t, "documents") {
			session := rapid.ByteRange(1, 6).Draw(t, "session")
			seqs[session]++
			if rapid.IntRange(0, 20).Draw(t, "gap") == 0 {
				seqs[session] += 3
			}
			d := index.Document{Session: [16]byte{session}, Seq: seqs[session], At: int64(rapid.IntRange(-100, 100).Draw(t, "at"))}
			for range rapid.IntRange(0, 12).Draw(t, "length") {
				d.Terms = append(d.Terms, fmt.Sprintf("w%d", rapid.IntRange(0, vocabulary).Draw(t, "word")))
			}
			list = append(list, d)
		}
		return list
	})
}

func build(t rapid.TB, list []index.Document) index.Source {
	head, pages, err := index.Build(slices.Clone(list))
	if err != nil {
		t.Fatal(err)
	}
	return source(t, head, pages)
}

func source(t rapid.TB, head []byte, pages [][]byte) index.Source {
	segment, err := index.Decode(head)
	if err != nil {
		t.Fatal(err)
	}
	if segment.PageCount() != len(pages) {
		t.Fatalf("a segment of %d pages, %d were made", segment.PageCount(), len(pages))
	}
	return index.Source{Segment: segment, Pages: reader(pages)}
}

func reader(pages [][]byte) index.Pages {
	return func(n int) ([]byte, error) {
		if n < 0 || n >= len(pages) {
			return nil, errors.New("no such page")
		}
		return pages[n], nil
	}
}

func merge(t rapid.TB, sources []index.Source) ([]byte, [][]byte) {
	var pages [][]byte
	head, err := index.Merge(sources, func(page []byte) error {
		pages = append(pages, page)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return head, pages
}

// A merge of segments is the segment of all their documents, byte by byte.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := corpus(300).Draw(t, "corpus")
		var sources []index.Source
		for rest := list; ; {
			n := rapid.IntRange(0, len(rest)).Draw(t, "part")
			sources = append(sources, build(t, rest[:n]))
			if rest = rest[n:]; len(rest) == 0 {
				break
			}
		}
		head, pages := merge(t, sources)
		wantHead, wantPages, err := index.Build(slices.Clone(list))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(head, wantHead) || !slices.EqualFunc(pages, wantPages, bytes.Equal) {
			t.Fatal("the merge of parts is not what the whole is built to")
		}
		if err := source(t, head, pages).Check(); err != nil {
			t.Fatal(err)
		}
	})
}

// Lists that go over several pages are found, and skipped over, whole.
func TestLongLists(t *testing.T) {
	var list []index.Document
	for i := range 60000 {
		d := index.Document{Session: [16]byte{byte(i / 10000)}, Seq: int64(i % 10000), Terms: []string{"all"}}
		for range i % 5 {
			d.Terms = append(d.Terms, "all", "most")
		}
		if i%9999 == 0 {
			d.Terms = append(d.Terms, "rare")
		}
		list = append(list, d)
	}
	s := build(t, list)
	if s.PageCount() < 5 {
		t.Fatalf("%d pages: the lists are not long", s.PageCount())
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	for _, near := range []bool{false, true} {
		q := query("rare", "most", "all")
		q.Near, q.Limit = near, 20
		equalHits(t, search(t, []index.Source{s}, q), naive(list, q))
	}
}

func query(words ...string) index.Query {
	q := index.Query{From: math.MinInt64, To: math.MaxInt64, Limit: 10}
	for i, w := range words {
		q.Terms = append(q.Terms, index.Term{Text: w, Weight: float64(1 + i%3)})
	}
	return q
}

func search(t rapid.TB, sources []index.Source, q index.Query) []index.Hit {
	result, err := index.Search(context.Background(), sources, q)
	if err != nil {
		t.Fatal(err)
	}
	return result.Hits
}

// naive is Search by looking at everything.
func naive(list []index.Document, q index.Query) []index.Hit {
	count := func(d index.Document, term string) (n float64) {
		for _, w := range d.Terms {
			if w == term {
				n++
			}
		}
		return n
	}
	// A term that is asked for twice has both weights.
	weights := make(map[string]float64)
	for _, term := range q.Terms {
		weights[term.Text] += term.Weight
	}
	tokens := 0.0
	df := make(map[string]float64)
	for _, d := range list {
		tokens += float64(len(d.Terms))
		for text := range weights {
			if count(d, text) > 0 {
				df[text]++
			}
		}
	}
	type name struct {
		session [16]byte
		seq     int64
	}
	n := float64(len(list))
	own := make(map[name]float64)
	var looked []index.Document
	for _, d := range list {
		if q.Sessions != nil && !q.Sessions[d.Session] || d.At < q.From || d.At >= q.To {
			continue
		}
		looked = append(looked, d)
		for text, weight := range weights {
			if tf := count(d, text); tf > 0 {
				idf := math.Log(1 + (n-df[text]+0.5)/(df[text]+0.5))
				own[name{d.Session, d.Seq}] += weight * idf * tf * 2.2 / (tf + 1.2*(0.25+0.75*float64(len(d.Terms))*n/tokens))
			}
		}
	}
	var hits []index.Hit
	for _, d := range looked {
		h := index.Hit{Session: d.Session, Seq: d.Seq, At: d.At, Own: own[name{d.Session, d.Seq}]}
		if q.Near {
			for _, away := range []int64{-2, -1, 1, 2} {
				h.Near += own[name{d.Session, d.Seq + away}]
			}
		}
		if h.Own+h.Near > 0 {
			hits = append(hits, h)
		}
	}
	slices.SortFunc(hits, func(a, b index.Hit) int {
		switch {
		case a.Rank() != b.Rank() && math.Abs(a.Rank()-b.Rank()) > 1e-5:
			if a.Rank() > b.Rank() {
				return -1
			}
			return 1
		case a.At != b.At:
			return int(b.At - a.At)
		case a.Session != b.Session:
			return bytes.Compare(b.Session[:], a.Session[:])
		}
		return int(b.Seq - a.Seq)
	})
	return hits[:min(len(hits), q.Limit)]
}

// equalHits compares with room for rounding: neighbours in the order whose
// ranks are equal but for it may be exchanged.
func equalHits(t rapid.TB, got, want []index.Hit) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d hits, want %d", len(got), len(want))
	}
	for i := range got {
		if math.Abs(got[i].Rank()-want[i].Rank()) > 1e-3 {
			t.Fatalf("hit %d: %+v, want %+v", i+1, got[i], want[i])
		}
		for _, w := range want {
			if w.Session == got[i].Session && w.Seq == got[i].Seq && (math.Abs(w.Own-got[i].Own) > 1e-3 || math.Abs(w.Near-got[i].Near) > 1e-3 || w.At != got[i].At) {
				t.Fatalf("hit %d: %+v, want %+v", i+1, got[i], w)
			}
		}
	}
}

// Search finds what looking at everything finds, however the documents are cut
// into segments.
func TestSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := corpus(120).Draw(t, "corpus")
		var sources []index.Source
		for rest := list; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "part")
			sources = append(sources, build(t, rest[:n]))
			rest = rest[n:]
		}
		q := query(rapid.SliceOfN(rapid.SampledFrom([]string{"w0", "w1", "w2", "w3", "w7", "w20", "absent"}), 0, 5).Draw(t, "words")...)
		q.Near = rapid.Bool().Draw(t, "near")
		q.Limit = rapid.IntRange(1, 150).Draw(t, "limit")
		if rapid.Bool().Draw(t, "sessions") {
			q.Sessions = map[[16]byte]bool{{1}: true, {4}: true, {9}: true}
		}
		if rapid.Bool().Draw(t, "times") {
			q.From, q.To = -30, 60
		}
		got := search(t, sources, q)
		equalHits(t, got, naive(list, q))
		if !slices.IsSortedFunc(got, func(a, b index.Hit) int {
			if a.Rank() != b.Rank() {
				if a.Rank() > b.Rank() {
					return -1
				}
				return 1
			}
			return int(b.At - a.At)
		}) {
			t.Fatalf("out of order: %+v", got)
		}
	})
}

// Words too frequent to be read whole change the order of what rare words have
// found, exactly; and find the newest where rare words find too few.
func TestFrequentWords(t *testing.T) {
	const parts, each = 5, 30000
	var list []index.Document
	var sources []index.Source
	for part := range parts {
		var mine []index.Document
		for i := range each {
			n := part*each + i
			d := index.Document{Session: [16]byte{byte(part), byte(i / 1000)}, Seq: int64(i%1000) + 1, At: int64(n)}
			for _, word := range []string{"a", "b", "c", "d"} {
				for range max(0, (n*7+int(word[0]))%9-5) {
					d.Terms = append(d.Terms, word)
				}
			}
			if n%2999 == 0 {
				d.Terms = append(d.Terms, "rare")
			}
			mine = append(mine, d)
		}
		list = append(list, mine...)
		sources = append(sources, build(t, mine))
	}
	q := query("a", "b", "rare", "c", "d")
	q.Near = true
	got, want := search(t, sources, q), naive(list, q)
	equalHits(t, got, want)

	q = query("a", "d")
	got = search(t, sources, q)
	if len(got) != q.Limit {
		t.Fatalf("%d hits of frequent words, want %d", len(got), q.Limit)
	}
	for _, h := range got {
		if h.Session[0] != parts-1 {
			t.Fatalf("hit %+v is not of the newest documents", h)
		}
	}
}

// Whatever stands in a head or a page, there is an answer or an error.
func FuzzSegment(f *testing.F) {
	var list []index.Document
	for i := range 300 {
		list = append(list, index.Document{Session: [16]byte{byte(i % 3)}, Seq: int64(i), At: int64(i), Terms: []string{"a", "a", fmt.Sprintf("w%d", i%7)}})
	}
	head, pages, err := index.Build(list)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(head, pages[0])
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, head, page []byte) {
		segment, err := index.Decode(head)
		if err != nil {
			if !errors.Is(err, index.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		s := index.Source{Segment: segment, Pages: func(int) ([]byte, error) { return page, nil }}
		if segment.PageCount() > 100 {
			return
		}
		for _, err := range []error{
			s.Check(),
			func() error {
				_, err := index.Search(t.Context(), []index.Source{s}, query("a", "w1", "w6"))
				return err
			}(),
			func() error {
				_, err := index.Merge([]index.Source{s}, func([]byte) error { return nil })
				return err
			}(),
		} {
			if err != nil && !errors.Is(err, index.ErrCorrupt) {
				t.Fatal(err)
			}
		}
	})
}

// A changed byte is an error or changes no more than an answer.
func TestDamage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := corpus(200).Draw(t, "corpus")
		head, pages, err := index.Build(list)
		if err != nil {
			t.Fatal(err)
		}
		var s index.Source
		if damaged := rapid.IntRange(-1, len(pages)-1).Draw(t, "where"); damaged < 0 {
			head[rapid.IntRange(0, len(head)-1).Draw(t, "byte")] ^= rapid.ByteRange(1, 255).Draw(t, "change")
			segment, err := index.Decode(head)
			if err != nil {
				if !errors.Is(err, index.ErrCorrupt) {
					t.Fatal(err)
				}
				return
			}
			s = index.Source{Segment: segment, Pages: reader(pages)}
		} else {
			s = source(t, head, pages)
			page := pages[damaged]
			page[rapid.IntRange(0, len(page)-1).Draw(t, "byte")] ^= rapid.ByteRange(1, 255).Draw(t, "change")
		}
		q := query("w0", "w1", "w2")
		q.Near = true
		result, err := index.Search(context.Background(), []index.Source{s}, q)
		hits := result.Hits
		if err == nil && len(hits) > q.Limit {
			t.Fatalf("%d hits", len(hits))
		}
		_, _ = index.Merge([]index.Source{s}, func([]byte) error { return nil })
		_ = s.Check()
	})
}
