package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Serve answers one client over a transport, as the user that Config.User finds in
// ctx, until ctx is done or the client has gone; both are no error. Calls that were
// begun are answered before that if the client has only stopped asking. The error
// wraps memory.ErrNotFound if there is no such user.
func Serve(ctx context.Context, c Config, t sdk.Transport) error {
	p, err := c.person(ctx, c.user(ctx))
	if err != nil {
		return fmt.Errorf("serve mcp: %w", err)
	}
	session, err := p.server.Connect(ctx, patient{t}, nil)
	if err != nil {
		return fmt.Errorf("serve mcp: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = session.Close() })
	defer stop()
	if err := session.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve mcp: %w", err)
	}
	return nil
}

// lastWords is how long a client that asks no more waits for what it asked: longer
// than any call takes.
const lastWords = 15 * time.Second

// patient is a transport on which a client is still answered when it has closed its
// half: what writes its questions into a pipe reads the answers to all of them.
type patient struct{ sdk.Transport }

// Connect implements sdk.Transport.
func (t patient) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &patientConnection{Connection: c, owed: map[jsonrpc.ID]struct{}{}, closed: make(chan struct{})}, nil
}

type patientConnection struct {
	sdk.Connection
	closing sync.Once
	closed  chan struct{}

	mu sync.Mutex
	// guarded by mu: the calls that have no answer yet, and, once nothing more comes,
	// what is closed when all have. One whose id another has meanwhile gets none.
	owed    map[jsonrpc.ID]struct{}
	settled chan struct{}
}

// Read implements sdk.Connection.
func (c *patientConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	message, err := c.Connection.Read(ctx)
	if r, ok := message.(*jsonrpc.Request); ok && err == nil && r.IsCall() {
		c.mu.Lock()
		c.owed[r.ID] = struct{}{}
		c.mu.Unlock()
	}
	if errors.Is(err, io.EOF) {
		c.settle(ctx)
	}
	return message, err
}

// settle waits until all calls are answered.
func (c *patientConnection) settle(ctx context.Context) {
	c.mu.Lock()
	if len(c.owed) == 0 {
		c.mu.Unlock()
		return
	}
	settled := make(chan struct{})
	c.settled = settled
	c.mu.Unlock()
	enough := time.NewTimer(lastWords)
	defer enough.Stop()
	select {
	case <-settled:
	case <-enough.C:
	case <-c.closed:
	case <-ctx.Done():
	}
}

// Write implements sdk.Connection.
func (c *patientConnection) Write(ctx context.Context, message jsonrpc.Message) error {
	err := c.Connection.Write(ctx, message)
	if r, ok := message.(*jsonrpc.Response); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.owed, r.ID); len(c.owed) == 0 && c.settled != nil {
			close(c.settled)
			c.settled = nil
		}
	}
	return err
}

// Close implements sdk.Connection.
func (c *patientConnection) Close() error {
	c.closing.Do(func() { close(c.closed) })
	return c.Connection.Close()
}
