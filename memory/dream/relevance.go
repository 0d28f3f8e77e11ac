package dream

import (
	"context"
	"fmt"
	"math"

	"github.com/gloveboxhq/glovebox/abi/tokens"
	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/internal/index"
)

// maxAbout is how much of a text is looked at to find what has to do with it, in
// tokens.
const maxAbout = 1000

// ByWords scores topics by the words that they share with a text, rare ones more:
// each counts by its inverse frequency among the topics. It takes time linear in
// what it is given.
func ByWords(topics []memory.Topic, about string) []float64 {
	var tokenizer index.Tokenizer
	wanted := map[string]int{} // by term: how many topics have it
	for _, term := range tokenizer.Terms(tokens.Cut(about, maxAbout)) {
		wanted[term] = 0
	}
	shared := make([][]string, len(topics))
	for i, t := range topics {
		seen := map[string]bool{}
		for _, term := range tokenizer.Terms(t.Name + " " + t.Content) {
			if _, ok := wanted[term]; ok && !seen[term] {
				seen[term] = true
				wanted[term]++
				shared[i] = append(shared[i], term)
			}
		}
	}
	scores := make([]float64, len(topics))
	for i := range topics {
		for _, term := range shared[i] {
			// What every topic has tells none from another.
			scores[i] += math.Log(float64(len(topics)) / float64(wanted[term]))
		}
	}
	return scores
}

// Embedder turns texts into vectors whose angles tell how much two have in common.
// It is safe for concurrent use.
type Embedder interface {
	// Embed returns a vector for each text, all of one length. It returns soon
	// after ctx is done.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// ByMeaning scores topics by the cosine of their vector and that of a text. The
// error is the embedder's, or says that its vectors are no vectors.
func ByMeaning(ctx context.Context, e Embedder, topics []memory.Topic, about string) ([]float64, error) {
	texts := []string{tokens.Cut(about, maxAbout)}
	for _, t := range topics {
		texts = append(texts, t.Name+": "+t.Content)
	}
	vectors, err := e.Embed(ctx, texts)
	if err != nil {
		return nil, fmt.Errorf("embed %d topics: %w", len(topics), err)
	}
	if len(vectors) != len(texts) {
		return nil, fmt.Errorf("embed %d topics: %d vectors for %d texts", len(topics), len(vectors), len(texts))
	}
	scores := make([]float64, len(topics))
	for i, v := range vectors[1:] {
		if scores[i] = cosine(vectors[0], v); len(v) != len(vectors[0]) || math.IsNaN(scores[i]) || math.IsInf(scores[i], 0) {
			return nil, fmt.Errorf("embed %d topics: vector %d cannot be compared", len(topics), i+1)
		}
	}
	return scores, nil
}

// cosine is 0 where a vector has no direction.
func cosine(a, b []float32) float64 {
	var product, ofA, ofB float64
	for i := range min(len(a), len(b)) {
		product += float64(a[i]) * float64(b[i])
		ofA += float64(a[i]) * float64(a[i])
		ofB += float64(b[i]) * float64(b[i])
	}
	if ofA == 0 || ofB == 0 {
		return 0
	}
	return product / math.Sqrt(ofA*ofB)
}
