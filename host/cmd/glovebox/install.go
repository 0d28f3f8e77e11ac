package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gloveboxhq/glovebox/abi"
	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/boundary"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/registry/lock"
	"github.com/gloveboxhq/glovebox/host/registry/source"
)

// consentFlags are how an operator agrees to a hand.
type consentFlags struct {
	granted     grantFlags
	secrets     []string // NAME=FROM HOST
	values      []string // KEY=VALUE
	permissions string
	unsigned    bool
}

func (f *consentFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.permissions, "yes-permissions", "", "agree without being asked: exactly what the hand asks for, as in files,http, or none, or all")
	flags.BoolVar(&f.unsigned, "unsigned", false, "take a module without a signature of a key under [trust.keys]")
	flags.StringArrayVar(&f.granted.files, "files", nil, "grant a directory: ROOT=DIR, repeatable; {user} in it stands for the user's name")
	flags.StringArrayVar(&f.granted.http, "http", nil, `grant these requests in place of all that the hand asks for: "https://api.example.com/v1/", repeatable`)
	flags.StringArrayVar(&f.granted.allowPrivate, "allow-private", nil, "let requests reach an address that is not public: 10.0.0.5:8080, repeatable")
	flags.StringArrayVar(&f.secrets, "secret", nil, `bind a secret: "NAME=env:VARIABLE https://api.example.com" or "NAME=file:PATH https://…", repeatable`)
	flags.StringArrayVar(&f.values, "set", nil, "set a value of the hand: KEY=VALUE, repeatable")
}

// grant is what the flags give.
func (f *consentFlags) grant() (host.GrantConfig, error) {
	grant, err := f.granted.config()
	if err != nil {
		return grant, err
	}
	for _, text := range f.secrets {
		name, binding, named := strings.Cut(text, "=")
		at := strings.LastIndex(binding, " ")
		if !named || at < 0 {
			return grant, usagef(`--secret %q: write "NAME=env:VARIABLE https://HOST" or "NAME=file:PATH https://HOST"`, text)
		}
		if grant.Secrets == nil {
			grant.Secrets = map[string]host.SecretConfig{}
		}
		if _, twice := grant.Secrets[name]; twice {
			return grant, usagef("--secret %s: it is bound twice", name)
		}
		from := binding[:at]
		// A server that asks the hand works in another directory.
		if path, ok := strings.CutPrefix(from, "file:"); ok && path != "" {
			if path, err = filepath.Abs(path); err != nil {
				return grant, err
			}
			from = "file:" + path
		}
		grant.Secrets[name] = host.SecretConfig{From: from, Host: binding[at+1:]}
	}
	return grant, nil
}

// withInstaller opens an installer whose compiler is this program.
func (a *app) withInstaller(ctx context.Context, do func(*host.Installer) error) error {
	config, err := a.config()
	if err != nil {
		return err
	}
	if config.Compiler, err = registry.Self(); err != nil {
		return err
	}
	i, err := host.OpenInstaller(ctx, config)
	if err != nil {
		return err
	}
	return errors.Join(do(i), i.Close())
}

func (a *app) handInstall() *cobra.Command {
	var name string
	var how connection
	var flags consentFlags
	c := &cobra.Command{
		Use: "install FILE|https://URL|oci://REGISTRY/REPOSITORY", Short: "Get a hand, show what it asks for, and let it be asked", Args: cobra.ExactArgs(1),
		Long: "Get a hand from a file, a web server, an OCI registry or a local OCI layout (oci:DIR), show who signed it and what it\n" +
			"asks for and why, ask whether to agree, compile it, and keep it with what was agreed beside glovebox.lock. A glovebox\n" +
			"that runs has it from the next query on; the configuration need not name it. Over a hand of the same name, the\n" +
			"difference is shown.",
		Example: "  glovebox hand install ./feeds.wasm\n  glovebox hand install oci://registry.example.com/hands/notes:1.2.0 --files notes=$HOME/notes --yes-permissions files",
		RunE: func(c *cobra.Command, args []string) error {
			if strings.HasPrefix(args[0], bundledPrefix) {
				return usagef("%s is part of glovebox: write [hands.%s] into the configuration", args[0], strings.TrimPrefix(args[0], bundledPrefix))
			}
			reference, err := referenceTo(args[0])
			if err != nil {
				return err
			}
			return a.withInstaller(c.Context(), func(i *host.Installer) error {
				options, done := how.options(a)
				fetched, err := source.Fetch(c.Context(), reference, options)
				done()
				if err != nil {
					return err
				}
				p, err := i.Look(name, fetched.Module, fetched.From)
				if err != nil {
					return fmt.Errorf("%s: %w", args[0], err)
				}
				return a.agree(c.Context(), i, p, flags, fetched.Module, "installed")
			})
		},
	}
	c.Flags().StringVar(&name, "name", "", "name for the hand (default its manifest's)")
	how.flags(c)
	flags.add(c)
	return c
}

func (a *app) handGrant() *cobra.Command {
	var flags consentFlags
	c := &cobra.Command{
		Use: "grant NAME", Short: "Agree again to a hand that is installed or configured", Args: cobra.ExactArgs(1),
		Long: "Show what a hand asks for and how it differs from what was agreed, and ask whether to agree: to one whose module\n" +
			"changed, that was revoked, or whose entry in glovebox.lock is refused. To an installed one the flags give something\n" +
			"else than before; one in the configuration is granted what stands there.",
		RunE: func(c *cobra.Command, args []string) error {
			return a.withInstaller(c.Context(), func(i *host.Installer) error {
				p, err := i.LookAgain(args[0])
				if err != nil {
					return err
				}
				given, err := flags.grant()
				if err != nil {
					return err
				}
				if !p.Installed && (!given.IsZero() || len(flags.values) > 0) {
					return usagef("%s is configured: [hands.%s] grants what it may reach and sets its values", args[0], args[0])
				}
				return a.agree(c.Context(), i, p, flags, p.Module(), "granted")
			})
		},
	}
	flags.add(c)
	return c
}

// agreement is what hand install, grant and revoke print.
type agreement struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Version string `json:"version,omitempty"`
	Digest  string `json:"digest"`
	Source  string `json:"source,omitempty"`
	// Key signed it, which SignedBy is the configuration's name for.
	Key         string       `json:"key,omitempty"`
	SignedBy    string       `json:"signed_by,omitempty"`
	Installed   bool         `json:"installed"`
	Permissions []permission `json:"permissions"`
	// Grant is what an installed hand may reach.
	Grant       *shownGrant    `json:"grant,omitempty"`
	Config      map[string]any `json:"config,omitempty"`
	Revoked     []string       `json:"revoked,omitempty"`
	Differences []string       `json:"differences,omitempty"`
	At          time.Time      `json:"at"`
}

type shownGrant struct {
	Files        map[string]string `json:"files,omitempty"`
	HTTP         []string          `json:"http,omitempty"`
	AllowPrivate []string          `json:"allow_private,omitempty"`
	Secrets      []string          `json:"secrets,omitempty"`
	KV           bool              `json:"kv"`
	LLM          bool              `json:"llm"`
}

func agreementOf(name, state string, e lock.Entry) agreement {
	out := agreement{Name: name, State: state, Version: e.Version, Digest: e.Digest, Source: plain(e.Source), Key: e.Key, Installed: e.Installed,
		Permissions: []permission{}, Config: e.Config, Revoked: e.Revoked, At: e.At.UTC().Truncate(time.Second)}
	for _, a := range e.Asks {
		out.Permissions = append(out.Permissions, permission{Capability: a.Capability, Paths: a.Paths, Hosts: allPlain(a.Hosts), Secrets: allPlain(a.Secrets), MaxTokens: a.MaxTokens})
	}
	if e.Installed {
		g := e.Grant
		out.Grant = &shownGrant{g.Files, g.HTTP, g.AllowPrivate, slices.Sorted(maps.Keys(g.Secrets)), g.KV, g.LLM}
	}
	return out
}

// agree shows a hand, finds out whether it is agreed to, and makes it so.
func (a *app) agree(ctx context.Context, i *host.Installer, p *host.Proposal, flags consentFlags, module []byte, done string) error {
	given, err := flags.grant()
	if err != nil {
		return err
	}
	values, err := setValues(module, flags.values)
	if err != nil {
		return err
	}
	out := a.stdout
	if a.asJSON {
		out = io.Discard
		if a.person() != nil && flags.permissions == "" {
			out = a.stderr
		}
	}
	show(out, p)
	if p.Unsigned != nil && p.Installed && !flags.unsigned {
		return fmt.Errorf("%s: %w: put the key of its author under [trust.keys], or take exactly this module with --unsigned", p.Name, p.Unsigned)
	}
	if missing := p.Ungranted(given); len(missing) > 0 {
		return fmt.Errorf("%s asks for what you have to name: say at least one of %s", p.Name, strings.Join(missing, " "))
	}
	if err := a.consent(p, flags); err != nil {
		return err
	}
	entry, err := i.Agree(ctx, p, host.Terms{Capabilities: p.Capabilities(), Grant: given, Config: values, Unsigned: flags.unsigned})
	if err != nil {
		return err
	}
	said := agreementOf(p.Name, done, entry)
	said.SignedBy, said.Differences = p.SignedBy, p.Differences
	if a.asJSON {
		return a.printJSON(said)
	}
	a.printf("%s %s %s\n", done, p.Name, entry.Digest)
	return nil
}

// show writes what there is to agree to. All that the hand's author chose is plain
// text.
func show(w io.Writer, p *host.Proposal) {
	line := func(key, format string, args ...any) {
		fmt.Fprintf(w, "%-12s"+format+"\n", append([]any{key}, args...)...)
	}
	line("hand", "%s %s", p.Name, p.Facts.Version)
	if text := strings.ReplaceAll(boundary.Neutral(p.Description), "\n", " "); text != "" {
		line("", "%s", text)
	}
	line("from", "%s", plain(p.Source))
	line("digest", "%s, %d bytes", p.Facts.Digest, p.Bytes)
	switch {
	case p.Bundled:
		line("signed by", "nobody: it is part of glovebox")
	case p.Facts.Key == "":
		line("signed by", "nobody")
	default:
		line("signed by", "%s", strings.TrimSpace(p.SignedBy+" "+p.Facts.Key))
		if text := strings.ReplaceAll(boundary.Neutral(p.Comment), "\n", " "); text != "" {
			line("", "%s", text)
		}
	}
	if p.Unsigned != nil {
		line("trusted", "no: %s", plain(p.Unsigned.Error()))
	}
	if len(p.Permissions) == 0 {
		line("asks for", "nothing: it can only read its query and answer")
	}
	for _, asked := range p.Permissions {
		line("asks for", "%s", strings.TrimSpace(string(asked.Capability)+" "+strings.ReplaceAll(boundary.Neutral(asked.Asked), "\n", ", ")))
		line("", "because: %s", strings.ReplaceAll(boundary.Neutral(asked.Reason), "\n", " "))
	}
	if p.Asks(abi.CapabilityFiles) && p.Asks(abi.CapabilityHTTP) {
		line("warning", "it asks for files and http: what it reads, it can send away")
	}
	switch {
	case p.Refused != nil:
		line("before", "%v", p.Refused)
	case p.Agreed != nil && len(p.Differences) == 0:
		line("before", "the same was agreed at %s", p.Agreed.At.Format(time.RFC3339))
	case p.Agreed != nil:
		for _, d := range p.Differences {
			line("changed", "%s", d)
		}
	}
	if p.Agreed != nil && p.Refused == nil && p.Agreed.IsRevoked() {
		line("revoked", "%s, at %s", cmp.Or(strings.Join(p.Agreed.Revoked, ", "), "everything"), p.Agreed.At.Format(time.RFC3339))
	}
}

// consent finds out whether somebody agrees to all that a hand asks for.
func (a *app) consent(p *host.Proposal, flags consentFlags) error {
	var asked []string
	for _, c := range p.Capabilities() {
		asked = append(asked, string(c))
	}
	exactly := cmp.Or(strings.Join(asked, ","), "none")
	if flags.permissions != "" {
		said := strings.Split(flags.permissions, ",")
		for i := range said {
			said[i] = strings.TrimSpace(said[i])
		}
		slices.Sort(said)
		if flags.permissions == "all" || strings.Join(slices.Compact(said), ",") == exactly {
			return nil
		}
		return fmt.Errorf("%s asks for %s, and --yes-permissions says %s: if you agree, say --yes-permissions %s", p.Name, exactly, plain(flags.permissions), exactly)
	}
	in := a.person()
	if in == nil {
		return fmt.Errorf("nobody can be asked here whether %s may have what it asks for: if you agree, say --yes-permissions %s", p.Name, exactly)
	}
	fmt.Fprintf(a.stderr, "Agree to this? [y/N] ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); err != nil || answer != "y" && answer != "yes" {
		return errors.New("not agreed, nothing has changed")
	}
	return nil
}

// person is where somebody types; nil if nobody does.
func (a *app) person() io.Reader {
	in, ok := a.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return nil
	}
	return in
}

func (a *app) handRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke NAME [CAPABILITY...]", Short: "Take back what a hand may do, at once", Args: cobra.MinimumNArgs(1),
		Long: "Take back capabilities of a hand that is installed or configured, or all that it may do if none is named. It is\n" +
			"disabled from then on, in every glovebox that runs here: its next query, and the next call of one that goes on, is\n" +
			"refused. glovebox hand grant is the way back.",
		RunE: func(c *cobra.Command, args []string) error {
			var capabilities []abi.Capability
			for _, text := range args[1:] {
				capability := abi.Capability(text)
				if capability.Module() == "" {
					return usagef("%q is no capability: there are %v", text, abi.Capabilities())
				}
				capabilities = append(capabilities, capability)
			}
			return a.withInstaller(c.Context(), func(i *host.Installer) error {
				entry, err := i.Revoke(c.Context(), args[0], capabilities...)
				if err != nil {
					return err
				}
				if a.asJSON {
					return a.printJSON(agreementOf(args[0], "revoked", entry))
				}
				a.printf("revoked %s: %s\n", args[0], cmp.Or(strings.Join(args[1:], ", "), "everything"))
				return nil
			})
		},
	}
}

func (a *app) handRemove() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "remove NAME", Short: "Remove an installed hand and the values that it kept, at once", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withInstaller(c.Context(), func(i *host.Installer) error {
				if !yes {
					if err := a.confirm(fmt.Sprintf("This removes hand %s and the values that it kept for good. Type the name to go on: ", plain(args[0])), args[0]); err != nil {
						return err
					}
				}
				if err := i.Remove(c.Context(), args[0]); err != nil {
					return err
				}
				if a.asJSON {
					return a.printJSON(map[string]string{"name": args[0], "state": "removed"})
				}
				a.printf("removed %s\n", args[0])
				return nil
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}
