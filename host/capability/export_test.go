package capability

import (
	"context"
	"net/netip"
)

// SetOwn makes e believe that the machine has these addresses.
func (e *Egress) SetOwn(addrs ...netip.Addr) {
	e.own = func() ([]netip.Addr, error) { return addrs, nil }
}

// Forbidden returns why an address is refused where nothing private is allowed.
func Forbidden(addr netip.Addr) string {
	_, why := classify(addr)
	return why
}

// DialUnpinned and DialPinned are the transport's way out, for a context of a
// request to checked, or of none.
func DialUnpinned(ctx context.Context, e *Egress, hostPort string) error {
	_, err := e.dial(ctx, "tcp", hostPort)
	return err
}

// ControlPinned is what the kernel's address is checked with.
func ControlPinned(checked netip.AddrPort, address string) error {
	return pinned{target{port: checked.Port()}, []netip.Addr{checked.Addr()}, nil}.control(context.Background(), "tcp", address, nil)
}

// Redact redacts value from text up to cut.
func Redact(value, text string, cut int) string {
	r := &redactor{}
	r.add(value)
	return string(r.redact([]byte(text), cut))
}

// NormalURL returns what is sent for a URL, and its host.
func NormalURL(raw string) (normal, host string, err error) {
	t, err := parseTarget(raw)
	if err != nil {
		return "", "", err
	}
	return t.String(), t.host, nil
}
