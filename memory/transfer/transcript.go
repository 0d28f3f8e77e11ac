package transfer

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"

	"github.com/gloveboxhq/glovebox/memory"
)

// MaxBeginning is the most messages of a conversation that are read before it is
// told which session it belongs to; less if they are large.
const MaxBeginning = 4096

const (
	beginningBytes = 8 << 20
	// Bounds of one write, for which a turn may have to wait.
	batchMessages = 256
	batchBytes    = 4 << 20
)

func importTranscripts(ctx context.Context, store memory.Store, user memory.UserID, in *bufio.Reader, options Options) (Report, error) {
	w := &writer{store: store, user: user, options: options, report: Report{FormatTranscript, memory.ImportReport{
		Added: map[memory.RecordKind]int{}, Skipped: map[memory.RecordKind]int{}}}}
	p := &parser{ctx: ctx, source: &meter{from: in, longest: options.MaxLine}, to: w}
	p.decoder = json.NewDecoder(p.source)
	err := p.document()
	if err != nil {
		err = fmt.Errorf("import: line %d: %w", p.line(err), err)
	}
	return w.report, err
}

// meter reads on as long as no single value is too long.
type meter struct {
	from          io.Reader
	longest, read int
	newlines      int
}

func (m *meter) Read(b []byte) (int, error) {
	// The decoder reads ahead by as much as it has read already.
	if m.read > m.longest {
		return 0, tooLong(m.longest)
	}
	n, err := m.from.Read(b)
	m.read += n
	for _, c := range b[:n] {
		if c == '\n' {
			m.newlines++
		}
	}
	return n, err
}

// parser turns a document into conversations.
type parser struct {
	ctx     context.Context
	source  *meter
	decoder *json.Decoder
	to      *writer
	// loose is the conversation of messages that stand one a line.
	loose *conversation
}

// line is where reading stands: at the end of the last value that was read, or,
// if the next one is why it failed, at the beginning of that.
func (p *parser) line(err error) int {
	_, broken := errors.AsType[*json.SyntaxError](err)
	ahead := 0
	buffered := bufio.NewReader(p.decoder.Buffered())
	for {
		c, err := buffered.ReadByte()
		if err != nil {
			return p.source.newlines - ahead + 1
		}
		broken = broken && strings.IndexByte(" \t\r\n,:", c) >= 0
		if c == '\n' && !broken {
			ahead++
		}
	}
}

func (p *parser) document() error {
	for values := 0; ; values++ {
		token, err := p.decoder.Token()
		p.source.read = 0
		if err == io.EOF {
			if values == 0 {
				return fmt.Errorf("there is nothing in it: %w", memory.ErrInvalid)
			}
			return p.endLoose()
		}
		if err != nil {
			return failure(err)
		}
		switch token {
		case json.Delim('{'):
			if p.loose, err = p.object(p.loose); err != nil {
				return err
			}
		case json.Delim('['):
			if err = p.endLoose(); err != nil {
				return err
			}
			if err = p.list(); err != nil {
				return err
			}
		default:
			return fmt.Errorf("a transcript is made of objects and lists: %w", memory.ErrInvalid)
		}
	}
}

func (p *parser) endLoose() error {
	c := p.loose
	p.loose = nil
	if c == nil {
		return nil
	}
	return c.end(p.ctx)
}

// list reads the elements of a list: messages of one conversation, or
// conversations.
func (p *parser) list() error {
	var c *conversation
	for p.decoder.More() {
		token, err := p.token()
		if err != nil {
			return err
		}
		if token != json.Delim('{') {
			return fmt.Errorf("a list of messages has something else in it: %w", memory.ErrInvalid)
		}
		if c, err = p.object(c); err != nil {
			return err
		}
	}
	if _, err := p.token(); err != nil {
		return err
	}
	if c == nil {
		return nil
	}
	return c.end(p.ctx)
}

// object reads what is left of an object: a message of the conversation c, which
// begins with it if it is nil, or one with messages, which ends c.
func (p *parser) object(c *conversation) (*conversation, error) {
	fields := map[string]json.RawMessage{}
	conversed := false
	for p.decoder.More() {
		token, err := p.token()
		if err != nil {
			return nil, err
		}
		key, _ := token.(string)
		if key == "messages" {
			if conversed || fields["role"] != nil {
				return nil, fmt.Errorf("messages stand twice, or beside a role: %w", memory.ErrInvalid)
			}
			conversed = true
			if c != nil {
				if err := c.end(p.ctx); err != nil {
					return nil, err
				}
				c = nil
			}
			var title string
			_ = json.Unmarshal(fields["title"], &title)
			if err := p.messages(title); err != nil {
				return nil, err
			}
			continue
		}
		value, err := p.value()
		if err != nil {
			return nil, err
		}
		if messageFields[key] || key == "title" {
			fields[key] = value
		}
	}
	if _, err := p.token(); err != nil {
		return nil, err
	}
	switch {
	case conversed && fields["role"] != nil:
		return nil, fmt.Errorf("a role stands beside messages: %w", memory.ErrInvalid)
	case conversed:
		return nil, nil
	case fields["role"] == nil:
		return nil, fmt.Errorf("an object has neither messages nor a role: %w", memory.ErrInvalid)
	}
	if c == nil {
		c = p.to.begin("")
	}
	return c, c.add(p.ctx, fields)
}

// messages reads the value of the field of this name: one conversation.
func (p *parser) messages(title string) error {
	token, err := p.token()
	if err != nil {
		return err
	}
	if token != json.Delim('[') {
		return fmt.Errorf("messages is no list: %w", memory.ErrInvalid)
	}
	c := p.to.begin(title)
	for p.decoder.More() {
		raw, err := p.value()
		if err != nil {
			return err
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(raw, &fields); err != nil {
			return fmt.Errorf("message %d: %w", c.next+1, invalid(err))
		}
		if err := c.add(p.ctx, fields); err != nil {
			return err
		}
	}
	if _, err := p.token(); err != nil {
		return err
	}
	return c.end(p.ctx)
}

// token reads the next token of a value that has begun.
func (p *parser) token() (json.Token, error) {
	token, err := p.decoder.Token()
	p.source.read = 0
	return token, failure(err)
}

// value reads a whole value inside of another.
func (p *parser) value() (raw json.RawMessage, err error) {
	err = p.decoder.Decode(&raw)
	p.source.read = 0
	if len(raw) > p.source.longest {
		err = tooLong(p.source.longest)
	}
	return raw, failure(err)
}

// failure tells errors of the document, which are ErrInvalid, from those of its
// reader. A value that has begun must end.
func failure(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if _, syntax := errors.AsType[*json.SyntaxError](err); syntax || err == io.ErrUnexpectedEOF {
		return invalid(err)
	}
	return err
}

// writer stores conversations.
type writer struct {
	store   memory.Store
	user    memory.UserID
	options Options
	report  Report
	agent   memory.AgentID
	// conversations counts those that were begun.
	conversations int
}

// conversation is one that is being read.
type conversation struct {
	*writer
	title string
	// session is zero until it is told.
	session memory.SessionID
	// highest is the Seq of the session's last message.
	highest int64
	// next is how many messages were read, chain stands for them all.
	next  int
	chain [sha256.Size]byte
	// waiting are not stored yet; chains are those of the beginning.
	waiting []memory.Draft
	chains  [][sha256.Size]byte
	size    int
	said    speech
}

func (w *writer) begin(title string) *conversation {
	w.conversations++
	return &conversation{writer: w, title: title, said: speech{now: w.options.Now}}
}

// add reads one message and stores what has come together.
func (c *conversation) add(ctx context.Context, fields map[string]json.RawMessage) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d, err := c.said.draft(fields)
	if err == nil {
		err = d.Check()
	}
	var u memory.Utterance
	if err == nil {
		u, err = memory.UtteranceOf(d.Role, d.Blocks)
	}
	if err != nil {
		return fmt.Errorf("message %d: %w", c.next+1, invalid(err))
	}
	c.chain = sha256.Sum256(append(c.chain[:], u[:]...))
	d.EventKey = eventKey(c.next, c.chain)
	c.next++
	c.waiting = append(c.waiting, d)
	for _, raw := range fields {
		c.size += len(raw)
	}
	if c.session.IsZero() {
		c.chains = append(c.chains, c.chain)
		if len(c.waiting) < MaxBeginning && c.size < beginningBytes {
			return nil
		}
		return c.settle(ctx)
	}
	if len(c.waiting) < batchMessages && c.size < batchBytes {
		return nil
	}
	return c.flush(ctx)
}

// end stores what is left.
func (c *conversation) end(ctx context.Context) error {
	if c.next == 0 {
		return nil
	}
	if c.session.IsZero() {
		return c.settle(ctx)
	}
	return c.flush(ctx)
}

const keyPrefix = "transcript/"

func eventKey(place int, chain [sha256.Size]byte) string {
	return fmt.Sprintf("%s%d/%x", keyPrefix, place, chain[:16])
}

// keyPlace returns the place in a transcript that made the key.
func keyPlace(key string) (place int, ok bool) {
	rest, ok := strings.CutPrefix(key, keyPrefix)
	if !ok {
		return 0, false
	}
	n, err := fmt.Sscanf(rest, "%d/", &place)
	return place, err == nil && n == 1
}

// settle finds or makes the session and stores the beginning.
func (c *conversation) settle(ctx context.Context) error {
	if c.agent == (memory.AgentID{}) {
		if err := c.findAgent(ctx); err != nil {
			return err
		}
	}
	switch {
	case c.options.Session.IsZero():
		if err := c.findSession(ctx); err != nil {
			return err
		}
	case c.conversations > 1:
		return fmt.Errorf("the document has more than one conversation, session %s takes one: %w", c.options.Session, memory.ErrInvalid)
	default:
		if err := c.open(ctx, c.options.Session); err != nil {
			return err
		}
	}
	c.chains = nil
	// Messages that were said here after an import have no keys, and the
	// conversation's own export has them too. The store is asked once: only the
	// whole beginning can be told from what is there.
	whole := len(c.waiting) < MaxBeginning && c.size < beginningBytes
	drafts := c.take()
	if !whole && !c.options.Session.IsZero() && c.highest > 0 {
		if err := c.goesOn(ctx, drafts[0].EventKey); err != nil {
			return err
		}
	}
	added, err := c.store.Ingest(ctx, c.user, c.session, drafts...)
	if err != nil {
		return err
	}
	c.count(len(added), len(drafts)-len(added))
	if len(added) > 0 {
		c.highest = added[len(added)-1].Seq
	}
	return nil
}

// goesOn returns an error unless the session began with this very transcript:
// where else a long one fits to what is there cannot be told from its beginning,
// and the rest of it would be doubled.
func (c *conversation) goesOn(ctx context.Context, key string) error {
	first, err := c.store.Messages(ctx, c.user, c.session, memory.MessageQuery{Limit: 1})
	if err != nil {
		return err
	}
	if len(first) > 0 && first[0].EventKey == key {
		return nil
	}
	return fmt.Errorf("session %s has messages already, and a transcript of more than %d messages or %d MiB is only added to one that it began: "+
		"import it without naming a session, or in parts: %w", c.session, MaxBeginning-1, beginningBytes>>20, memory.ErrConflict)
}

func (w *writer) findAgent(ctx context.Context) error {
	agents, err := w.store.Agents(ctx)
	if err != nil {
		return err
	}
	for _, a := range agents {
		if a.Name == w.options.Agent {
			w.agent = a.ID
			return nil
		}
	}
	a, err := w.store.PutAgent(ctx, w.options.Agent, "", w.options.Now())
	w.agent = a.ID
	return err
}

// open takes the session of this id, or makes it.
func (c *conversation) open(ctx context.Context, id memory.SessionID) error {
	s, err := c.store.Session(ctx, c.user, id)
	if errors.Is(err, memory.ErrNotFound) {
		s, err = c.store.CreateSession(ctx, memory.Session{ID: id, Agent: c.agent, User: c.user, Title: c.title, CreatedAt: c.waiting[0].At})
		if err == nil {
			c.report.Added[memory.RecordSession]++
		}
	} else if err == nil {
		c.report.Skipped[memory.RecordSession]++
	}
	c.session, c.highest = s.ID, int64(s.Messages)
	return err
}

// space is the namespace of the sessions' ids.
var space = uuid.MustParse("6f0f3a52-8f5e-5d0c-9a53-1f6f1f0c7f11")

// findSession tells the session by the beginning of the conversation. A session
// that was made for the beginning up to some place is either of this conversation
// or departs from it at a later place, where the next one to look at is named by
// the beginning up to there: each step is further on.
func (c *conversation) findSession(ctx context.Context) error {
	place := 0
	for i, d := range c.waiting {
		if d.Role == memory.RoleUser {
			place = i
			break
		}
	}
	for {
		name := make([]byte, 0, 2*len(c.user)+len(c.chain)+8)
		name = append(append(append(name, c.user[:]...), c.agent[:]...), c.chains[place][:]...)
		name = binary.BigEndian.AppendUint64(name, uint64(place))
		id := memory.SessionID(uuid.NewSHA1(space, name))
		departs, err := c.departs(ctx, id)
		if err != nil {
			return err
		}
		if departs < 0 {
			return c.open(ctx, id)
		}
		if departs <= place {
			return fmt.Errorf("session %s is not what its id says: %w", id, memory.ErrConflict)
		}
		place = departs
	}
}

// departs returns the first place at which the session has another message of a
// transcript than this one; -1 if there is none.
func (c *conversation) departs(ctx context.Context, id memory.SessionID) (int, error) {
	for after := int64(0); ; {
		messages, err := c.store.Messages(ctx, c.user, id, memory.MessageQuery{After: after, Limit: batchMessages})
		if errors.Is(err, memory.ErrNotFound) {
			return -1, nil
		}
		if err != nil {
			return 0, err
		}
		for _, m := range messages {
			after = m.Seq
			place, ok := keyPlace(m.EventKey)
			if !ok {
				continue
			}
			if place >= len(c.chains) {
				return -1, nil
			}
			if m.EventKey != eventKey(place, c.chains[place]) {
				return place, nil
			}
		}
		if len(messages) < batchMessages {
			return -1, nil
		}
	}
}

// take returns what waits.
func (c *conversation) take() []memory.Draft {
	drafts := c.waiting
	c.waiting, c.size = nil, 0
	return drafts
}

// flush stores what waits; the keys tell what is there already.
func (c *conversation) flush(ctx context.Context) error {
	for drafts := c.take(); len(drafts) > 0; {
		n := min(len(drafts), batchMessages)
		known, err := c.inPlace(ctx, drafts[:n])
		if err != nil {
			return err
		}
		stored, err := c.store.Append(ctx, c.user, c.session, drafts[known:n]...)
		if err != nil {
			return err
		}
		drafts = drafts[n:]
		added := 0
		for _, m := range stored {
			if m.Seq > c.highest {
				c.highest = m.Seq
				added++
			}
		}
		c.count(added, n-added)
	}
	return nil
}

// inPlace returns how many of the first drafts are what the session has at their
// places in the transcript, whatever its keys say: what went on here, or came in
// a part, has other keys than the whole gives it.
func (c *conversation) inPlace(ctx context.Context, drafts []memory.Draft) (known int, err error) {
	place, ok := keyPlace(drafts[0].EventKey)
	if !ok || int64(place) >= c.highest {
		return 0, nil
	}
	there, err := c.store.Messages(ctx, c.user, c.session, memory.MessageQuery{After: int64(place), Limit: len(drafts)})
	if err != nil {
		return 0, err
	}
	for known < len(there) {
		a, err := memory.UtteranceOf(there[known].Role, there[known].Blocks)
		if err != nil {
			return known, err
		}
		b, err := memory.UtteranceOf(drafts[known].Role, drafts[known].Blocks)
		if err != nil || a != b {
			return known, err
		}
		known++
	}
	return known, nil
}

func (w *writer) count(added, skipped int) {
	if added > 0 {
		w.report.Added[memory.RecordMessage] += added
	}
	if skipped > 0 {
		w.report.Skipped[memory.RecordMessage] += skipped
	}
}
