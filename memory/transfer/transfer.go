// Package transfer moves conversations into and out of a memory.Store as streams
// of JSON, in memory that does not grow with them.
//
// Its own format, which Export writes, is one JSON document a line:
//
//	{"format":"glovebox-export","version":1}
//	{"kind":"session","session":{…}}         a memory.Record each
//	{"end":{"records":1}}                    without which a document was cut off
//
// Import also reads the transcripts of others: see Import.
package transfer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/gloveboxhq/glovebox/memory"
)

const (
	formatName    = "glovebox-export"
	formatVersion = 1
)

// DefaultMaxLine is the most bytes of one record or message that is read.
const DefaultMaxLine = 64 << 20

// Format says what a document is.
type Format string

// The formats.
const (
	FormatExport     Format = "export"
	FormatTranscript Format = "transcript"
)

// Options for Import. Those up to Session are for transcripts alone.
type Options struct {
	// Agent is the name of the agent that the conversations are with; it is
	// made if there is none.
	Agent string
	// Session, if not zero, takes the one conversation of the document; it is
	// made if there is none.
	Session memory.SessionID
	// Now is the clock for messages that have no time; nil means time.Now.
	Now func() time.Time
	// MaxLine bounds one record or message in bytes; 0 means DefaultMaxLine.
	MaxLine int
}

// Report tells what an import did: it counts sessions and messages of a
// transcript, records of an export.
type Report struct {
	Format Format `json:"format"`
	memory.ImportReport
}

type header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
}

type trailer struct {
	End *struct {
		Records int `json:"records"`
	} `json:"end"`
}

// Export writes everything of the user to w, one record a line. The same content
// gives the same bytes. Errors: memory.ErrNotFound, and w's own.
func Export(ctx context.Context, store memory.Store, user memory.UserID, w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<16)
	records := 0
	err := store.Export(ctx, user, func(r memory.Record) error {
		// A user who is not known leaves no document.
		if records == 0 {
			fmt.Fprintf(out, "{\"format\":%q,\"version\":%d}\n", formatName, formatVersion)
		}
		records++
		line, err := r.MarshalJSON()
		if err != nil {
			return fmt.Errorf("export record %d: %w", records, err)
		}
		_, err = out.Write(append(line, '\n'))
		return err
	})
	if err != nil {
		return errors.Join(err, out.Flush())
	}
	if records == 0 {
		fmt.Fprintf(out, "{\"format\":%q,\"version\":%d}\n", formatName, formatVersion)
	}
	fmt.Fprintf(out, "{\"end\":{\"records\":%d}}\n", records)
	return out.Flush()
}

// Import reads what Export wrote, or transcripts in one of these forms, and
// stores it for the user:
//
//   - {"messages": […]}, one such object or several one after the other, each a
//     conversation; other fields but "title" are passed over
//   - [{"role": …, "content": …}, …], or a list of the objects above
//   - one {"role": …, "content": …} a line, all of them one conversation
//
// Messages are as OpenAI's interface has them: content is a text or a list of
// parts, tool_calls and tool_call_id are kept, and what a tool says is external.
// A message without a time of its own gets one from the clock, later than the
// one before it. One with the marks of memory.MarkedSource gets that source and
// is no user's activity.
//
// To import a transcript again adds what is new of it. Each message has an event
// key made of its place and of all that was said up to it; the session's id is
// made of the user, the agent and the beginning of the conversation, as much of
// it as no other imported conversation has. So a conversation is known again when
// it comes whole or longer, and two conversations are one only if one is the
// beginning of the other. Into Options.Session goes also what was not imported
// before: memory.Store.Ingest tells what is new of the first MaxBeginning
// messages, so that a tail of what the session has is known, too.
//
// Import stores as it goes: when it fails, what was read before stays. Errors:
// memory.ErrInvalid, with the record, line or message, for what cannot be read or
// breaks a rule; memory.ErrConflict for an id that is something else's;
// memory.ErrNotFound for the user; and those of r.
func Import(ctx context.Context, store memory.Store, user memory.UserID, r io.Reader, options Options) (Report, error) {
	if options.MaxLine <= 0 {
		options.MaxLine = DefaultMaxLine
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	in := bufio.NewReaderSize(r, 1<<16)
	head, ours, err := readHeader(in)
	switch {
	case err != nil:
		return Report{}, fmt.Errorf("import: %w", err)
	case !ours:
		return importTranscripts(ctx, store, user, in, options)
	case head.Version != formatVersion:
		return Report{}, fmt.Errorf("import: the document has version %d, this program reads %d: %w", head.Version, formatVersion, memory.ErrInvalid)
	}
	counts, err := store.Import(ctx, user, records(in, options.MaxLine))
	if err != nil {
		err = fmt.Errorf("import: %w", err)
	}
	return Report{FormatExport, counts}, err
}

// readHeader takes the header of an export from in; of another document it takes
// nothing.
func readHeader(in *bufio.Reader) (head header, ours bool, err error) {
	const longest = 256
	begins, err := in.Peek(longest)
	if err != nil && err != io.EOF && bytes.IndexByte(begins, '\n') < 0 {
		return head, false, err
	}
	if mark := []byte("\xef\xbb\xbf"); bytes.HasPrefix(begins, mark) {
		if _, err := in.Discard(len(mark)); err != nil {
			return head, false, err
		}
		begins = begins[len(mark):]
	}
	line, _, _ := bytes.Cut(begins, []byte("\n"))
	if json.Unmarshal(line, &head) != nil || head.Format != formatName {
		return head, false, nil
	}
	_, err = in.Discard(min(len(line)+1, len(begins)))
	return head, true, err
}

// records reads one record a line until the trailer.
func records(in *bufio.Reader, longest int) iter.Seq2[memory.Record, error] {
	return func(yield func(memory.Record, error) bool) {
		var buffer []byte
		// The header was the first line.
		for number := 2; ; number++ {
			line, err := readLine(in, buffer[:0], longest)
			buffer = line
			r, ended := memory.Record{}, false
			switch {
			case err == io.EOF:
				err = fmt.Errorf("line %d: the document was cut off, its last line is missing: %w", number, memory.ErrInvalid)
			case err != nil:
				err = fmt.Errorf("line %d: %w", number, err)
			default:
				if ended, err = isTrailer(in, line, number-2); !ended && err == nil {
					err = json.Unmarshal(line, &r)
				}
				if err != nil {
					err = fmt.Errorf("line %d: %w", number, invalid(err))
				}
			}
			if ended && err == nil {
				return
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// isTrailer reports whether the line ends the document, which then must have
// so many records and no more lines.
func isTrailer(in *bufio.Reader, line []byte, records int) (bool, error) {
	var t trailer
	if !bytes.HasPrefix(line, []byte(`{"end"`)) || json.Unmarshal(line, &t) != nil || t.End == nil {
		return false, nil
	}
	if t.End.Records != records {
		return true, fmt.Errorf("the document has %d records and says that it has %d: %w", records, t.End.Records, memory.ErrInvalid)
	}
	if _, err := in.Peek(1); err != io.EOF {
		return true, fmt.Errorf("something stands after the end: %w", errors.Join(err, memory.ErrInvalid))
	}
	return true, nil
}

// readLine appends the next line to buffer, without its end; io.EOF if there is
// none.
func readLine(in *bufio.Reader, buffer []byte, longest int) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(buffer)+len(part) > longest+1 {
			return buffer, tooLong(longest)
		}
		buffer = append(buffer, part...)
		switch {
		case err == bufio.ErrBufferFull:
		case err == io.EOF && len(buffer) > 0, err == nil:
			return bytes.TrimSuffix(buffer, []byte("\n")), nil
		default:
			return buffer, err
		}
	}
}

func tooLong(longest int) error {
	return fmt.Errorf("it is longer than %d bytes: %w", longest, memory.ErrInvalid)
}

// invalid makes an error of decoding match memory.ErrInvalid.
func invalid(err error) error {
	if errors.Is(err, memory.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", memory.ErrInvalid, err)
}
