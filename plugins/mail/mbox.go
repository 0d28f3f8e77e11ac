package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/mail"
	"strings"
	"time"
)

// Bounds of what is kept of one message, in bytes. The rest is skipped.
const (
	maxHeaderBytes = 256 << 10
	maxBodyBytes   = 64 << 10
)

// mboxPiece is the buffer an mbox file is read through, in bytes: one host call
// fills it.
const mboxPiece = 512 << 10

// mboxMessage is one message of an mbox file.
type mboxMessage struct {
	// offset is where the envelope line begins, in bytes.
	offset int64
	// envelope is when the "From " line says that the mail was delivered; zero
	// if it does not.
	envelope time.Time
	// raw is the header, of headerSize bytes with the blank line behind it, and
	// the start of the body, unquoted; it is overwritten by the next message.
	raw        []byte
	headerSize int
	// whole says that nothing was left out, headerWhole nothing of the header.
	whole, headerWhole bool
}

// splitMbox calls yield for each message of the mbox data in r whose envelope
// time is wanted, until yield returns false. base is the offset of r's first
// byte in the file. Unless base is zero, r begins somewhere inside a message,
// and what precedes the first envelope line is skipped. It reads the dialects
// mboxo, mboxrd, mboxcl and mboxcl2 in linear time and bounded memory.
//
// A message begins at a "From " line at the start or after a blank line which
// ends in a date or is followed by a header field; prose that begins with
// "From " has neither. Content-Length is not believed: it is wrong as soon as
// anything between sender and file rewrites the mail.
func splitMbox(r io.Reader, base int64, wanted func(time.Time) bool, yield func(mboxMessage) bool) error {
	s := mboxSplitter{in: bufio.NewReaderSize(r, mboxPiece), offset: base, atStart: true, afterBlank: base == 0}
	for {
		if !s.keeps() {
			s.skip()
		}
		line, err := s.in.ReadSlice('\n')
		if bytes.HasPrefix(line, fromLine) {
			line = bytes.Clone(line) // looking ahead may move the buffer
		}
		if envelope, at, ok := s.envelope(line); ok {
			if s.open && !yield(s.finished()) {
				return nil
			}
			s.begin(envelope, at, wanted(envelope))
		} else {
			s.add(line, err == nil)
		}
		if err == nil || errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if s.open && !yield(s.finished()) || err == io.EOF {
			return nil
		}
		return fmt.Errorf("read mbox at byte %d: %w", s.offset, err)
	}
}

// mboxSplitter is where splitMbox stands.
type mboxSplitter struct {
	in      *bufio.Reader
	message mboxMessage
	offset  int64 // of the next byte
	open    bool  // message has begun and is wanted
	header  bool  // the next line is in its header
	room    int   // bytes of this part of it that may still be kept
	cut     bool  // some were not
	// atStart says that a line begins at offset, afterBlank that the line
	// before is blank or there is none.
	atStart, afterBlank bool
}

func (s *mboxSplitter) keeps() bool { return s.open && (s.header || s.room > 0) }

func (s *mboxSplitter) finished() mboxMessage {
	s.message.whole = !s.cut
	if s.header {
		s.endHeader()
	}
	return s.message
}

// envelope tells whether line, just read, is an envelope line; at is its
// offset.
func (s *mboxSplitter) envelope(line []byte) (t time.Time, at int64, ok bool) {
	at = s.offset
	if !s.atStart || !s.afterBlank || !bytes.HasPrefix(line, fromLine) {
		return time.Time{}, at, false
	}
	size := len(line)
	if t, ok = envelopeTime(string(line[:min(size, 1024)])); !ok {
		// A file that begins so was taken for an mbox for that.
		ok = at == 0 || s.beforeField()
	}
	if ok {
		s.offset += int64(size)
	}
	return t, at, ok
}

// beforeField tells whether a header field follows the line just read.
func (s *mboxSplitter) beforeField() bool {
	following, _ := s.in.Peek(256)
	return startsField(following)
}

func (s *mboxSplitter) begin(envelope time.Time, offset int64, wanted bool) {
	s.message = mboxMessage{offset: offset, envelope: envelope, raw: s.message.raw[:0]}
	s.open, s.header, s.room, s.cut = wanted, true, maxHeaderBytes, false
	s.atStart, s.afterBlank = true, false
}

// add adds line, or the piece of one if it is not complete, to the message.
func (s *mboxSplitter) add(line []byte, complete bool) {
	s.offset += int64(len(line))
	blank := s.atStart && (string(line) == "\n" || string(line) == "\r\n")
	if s.open {
		kept := line
		if s.atStart && !s.header {
			kept = unquoteFrom(line)
		}
		if len(kept) > s.room {
			kept, s.cut = kept[:s.room], true
		}
		s.message.raw = append(s.message.raw, kept...)
		s.room -= len(kept)
		if blank && s.header {
			s.endHeader()
		}
	}
	s.atStart, s.afterBlank = complete, blank
}

func (s *mboxSplitter) endHeader() {
	s.message.headerSize, s.message.headerWhole = len(s.message.raw), !s.cut
	s.header, s.room = false, maxBodyBytes
}

// skip discards what is before the next line that may be an envelope line. It
// is much faster than going line by line.
func (s *mboxSplitter) skip() {
	for {
		// Only what is buffered is looked at, for to fill the buffer is to move
		// it, which for every message would cost more than reading them.
		data, _ := s.in.Peek(s.in.Buffered())
		if s.atStart && s.afterBlank && bytes.HasPrefix(data, fromLine) {
			return
		}
		at := nextEnvelope(data, s.atStart)
		if at >= 0 {
			s.discard(at)
			s.atStart, s.afterBlank = true, true
			return
		}
		// An envelope line may begin at the end and go on in the next piece.
		const tail = len("\n\r\nFrom ")
		if len(data) > tail {
			s.discard(len(data) - tail)
			s.atStart, s.afterBlank = false, false
		}
		if _, err := s.in.Peek(tail + 1); err != nil {
			return // what is left is too short to hold one, and is added
		}
	}
}

// discard drops the next n bytes, which are buffered.
func (s *mboxSplitter) discard(n int) {
	s.in.Discard(n) // no error: no read
	s.offset += int64(n)
	s.cut = s.cut || n > 0
}

// nextEnvelope returns the index in data of the first "From " behind a blank
// line, -1 if there is none. atStart says that data begins with a line.
func nextEnvelope(data []byte, atStart bool) int {
	if atStart {
		rest := bytes.TrimPrefix(data, []byte{'\r'})
		if bytes.HasPrefix(rest, []byte("\nFrom ")) {
			return len(data) - len(rest) + 1
		}
	}
	for start := 0; ; {
		i := bytes.Index(data[start:], []byte("\nFrom "))
		if i < 0 {
			return -1
		}
		start += i + 1
		before := bytes.TrimSuffix(data[:start-1], []byte{'\r'})
		if len(before) > 0 && before[len(before)-1] == '\n' {
			return start
		}
	}
}

var fromLine = []byte("From ")

// unquoteFrom undoes the quoting of body lines that begin with "From ".
func unquoteFrom(line []byte) []byte {
	if len(line) > 0 && line[0] == '>' && bytes.HasPrefix(bytes.TrimLeft(line, ">"), fromLine) {
		return line[1:]
	}
	return line
}

// startsField tells whether b begins with a header field, as in "Subject: ".
func startsField(b []byte) bool {
	name, _, ok := bytes.Cut(b, []byte(":"))
	return ok && len(name) > 0 && bytes.IndexFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// envelopeTime returns the date at the end of an envelope line such as
// "From ann@example.com Mon Mar  2 09:15:00 2026". It reports false if there is
// none. A named zone is taken for UTC.
func envelopeTime(line string) (time.Time, bool) {
	fields := strings.Fields(strings.TrimPrefix(line, "From "))
	for i := 0; i+4 < len(fields); i++ {
		if !isDayName(fields[i]) {
			continue
		}
		if strings.HasSuffix(fields[i], ",") {
			t, err := mail.ParseDate(strings.Join(fields[i:], " "))
			return t, err == nil
		}
		year, zone := "", "+0000"
		for _, f := range fields[i+4 : min(len(fields), i+7)] {
			switch {
			case len(f) == 5 && (f[0] == '+' || f[0] == '-'):
				zone = f
			case len(f) == 4 && f[0] >= '0' && f[0] <= '9' && year == "":
				year = f
			}
		}
		clock := fields[i+3]
		if strings.Count(clock, ":") == 1 {
			clock += ":00"
		}
		t, err := time.Parse("Jan 2 15:04:05 2006 -0700",
			fields[i+1]+" "+fields[i+2]+" "+clock+" "+year+" "+zone)
		if err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

func isDayName(s string) bool {
	s = strings.TrimSuffix(s, ",")
	return len(s) == 3 && strings.Contains("Mon Tue Wed Thu Fri Sat Sun", s)
}
