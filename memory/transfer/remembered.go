package transfer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/gloveboxhq/glovebox/abi/strictjson"
	"github.com/gloveboxhq/glovebox/memory"
)

// MemoryFormat names the document of ExportMemory, MemoryVersion its form.
const (
	MemoryFormat  = "glovebox-memory"
	MemoryVersion = 1
)

// MaxMemoryDocument is the most bytes that ImportMemory reads.
const MaxMemoryDocument = 64 << 20

// maxMemoryDepth is more than a topic or an extraction nests.
const maxMemoryDepth = 64

// memoryDocument is what is remembered of a user, on its way.
type memoryDocument struct {
	Format     string          `json:"format"`
	Version    int             `json:"version"`
	ExportedAt time.Time       `json:"exported_at"`
	Records    []memory.Record `json:"records"`
}

// ExportMemory writes what is remembered of a user, topics with their history and
// extractions, as one JSON object that does not name the user. The same content
// and time give the same bytes.
func ExportMemory(ctx context.Context, store memory.Store, user memory.UserID, at time.Time, w io.Writer) error {
	document := memoryDocument{Format: MemoryFormat, Version: MemoryVersion, ExportedAt: at.UTC(), Records: []memory.Record{}}
	err := store.ExportMemory(ctx, user, func(r memory.Record) error {
		document.Records = append(document.Records, r)
		return nil
	})
	if err != nil {
		return fmt.Errorf("export memory: %w", err)
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(document); err != nil {
		return fmt.Errorf("export memory: %w", err)
	}
	return nil
}

// ImportMemory stores what ExportMemory wrote for a user. What is there already in
// the same form is skipped. The whole document is read before anything is stored.
// Errors wrap memory.ErrInvalid for a document that is none, is longer than
// MaxMemoryDocument or holds other records, and are those of memory.Store.Import.
func ImportMemory(ctx context.Context, store memory.Store, user memory.UserID, r io.Reader) (memory.ImportReport, error) {
	fail := func(err error) (memory.ImportReport, error) {
		return memory.ImportReport{}, fmt.Errorf("import memory: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(r, MaxMemoryDocument+1))
	if err != nil {
		return fail(err)
	}
	if len(data) > MaxMemoryDocument {
		return fail(fmt.Errorf("the document is longer than %d MiB: %w", MaxMemoryDocument>>20, memory.ErrInvalid))
	}
	var document memoryDocument
	if err := strictjson.Object(data, &document, strictjson.Limits{Bytes: MaxMemoryDocument, Depth: maxMemoryDepth}); err != nil {
		return fail(fmt.Errorf("%w: %w", memory.ErrInvalid, err))
	}
	if document.Format != MemoryFormat || document.Version != MemoryVersion {
		return fail(fmt.Errorf("format %q, version %d: this reads %q, version %d: %w", document.Format, document.Version, MemoryFormat, MemoryVersion, memory.ErrInvalid))
	}
	for i, record := range document.Records {
		if record.Kind != memory.RecordExtraction && record.Kind != memory.RecordTopic {
			return fail(fmt.Errorf("record %d is a %s: a memory holds topics and extractions: %w", i+1, record.Kind, memory.ErrInvalid))
		}
	}
	report, err := store.Import(ctx, user, allOf(document.Records))
	if err != nil {
		return report, fmt.Errorf("import memory: %w", err)
	}
	return report, nil
}

func allOf(records []memory.Record) iter.Seq2[memory.Record, error] {
	return func(yield func(memory.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}
