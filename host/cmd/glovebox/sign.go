package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/registry"
	"github.com/gloveboxhq/glovebox/host/registry/signature"
	"github.com/gloveboxhq/glovebox/host/sandbox"
)

func (a *app) handKeygen() *cobra.Command {
	var (
		name         string
		bare         bool
		passwordFile string
	)
	c := &cobra.Command{
		Use: "keygen", Short: "Make a key to sign modules with", Args: cobra.NoArgs,
		Long: "Make a key to sign modules with.\n\nThe secret key goes to NAME.key, which is for you alone, and the public key to NAME.pub, which is for all who\n" +
			"are to trust what you sign. Both are as minisign has them. Neither is ever overwritten.",
		RunE: func(c *cobra.Command, _ []string) error {
			if bare && passwordFile != "" {
				return usagef("--no-password and --password-file exclude each other")
			}
			secretPath, publicPath := name+".key", name+".pub"
			for _, path := range []string{secretPath, publicPath} {
				if _, err := os.Lstat(path); err == nil {
					return fmt.Errorf("%s exists: a key is never overwritten; name another with -o", path)
				}
			}
			key, err := signature.Generate(nil)
			if err != nil {
				return err
			}
			var secret []byte
			if bare {
				secret, err = key.File()
			} else {
				var password string
				if password, err = a.newPassword(c.Context(), passwordFile); err != nil {
					return err
				}
				secret, err = key.Encrypt(password)
			}
			if err != nil {
				return err
			}
			if err := writeNew(secretPath, secret, 0o600); err != nil {
				return err
			}
			if err := writeNew(publicPath, key.Public().File(), 0o644); err != nil {
				return errors.Join(err, os.Remove(secretPath))
			}
			if a.asJSON {
				return a.printJSON(map[string]any{"secret": secretPath, "public": publicPath, "key": key.Public().String(), "id": key.Public().ID(), "encrypted": !bare})
			}
			a.printf("secret key  %s: keep it to yourself, and a copy of it\npublic key  %s: publish it\n%s\n", secretPath, publicPath, key.Public())
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVarP(&name, "output", "o", "glovebox", "NAME of the files NAME.key and NAME.pub")
	flags.BoolVar(&bare, "no-password", false, "leave the secret key unencrypted, for machines that sign by themselves")
	flags.StringVar(&passwordFile, "password-file", "", "file whose first line is the password (default ask for it)")
	return c
}

// writeNew writes a file that must not exist, and leaves nothing behind if it fails.
func writeNew(path string, data []byte, mode os.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(path))
	}
	return nil
}

func (a *app) handSign() *cobra.Command {
	var keyPath, expires, output, passwordFile string
	var o signature.Options
	c := &cobra.Command{
		Use: "sign FILE.wasm --key FILE", Short: "Sign a module", Args: cobra.ExactArgs(1),
		Long: "Sign a module, its manifest included.\n\nA signature that it has is replaced. Whatever changes the module afterwards breaks the signature: sign last.",
		RunE: func(c *cobra.Command, args []string) error {
			if keyPath == "" {
				return usagef("--key is missing: name a secret key file, such as glovebox hand keygen writes")
			}
			if expires != "" {
				var err error
				if o.Expires, err = parseExpiry(expires); err != nil {
					return usagef("--expires: %w", err)
				}
				if !o.Expires.After(time.Now()) {
					return usagef("--expires %s: that is over: nobody would accept the signature", expires)
				}
			}
			module, err := registry.ReadModule(args[0])
			if err != nil {
				return err
			}
			if _, err := sandbox.Inspect(module); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			key, err := a.secretKey(c.Context(), keyPath, passwordFile)
			if err != nil {
				return err
			}
			signed, err := signature.Sign(module, key, o)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if _, err := sandbox.Inspect(signed); err != nil {
				return fmt.Errorf("%s, signed: %w", args[0], err)
			}
			if output == "" {
				output = args[0]
			}
			if err := replaceFile(output, signed); err != nil {
				return err
			}
			if a.asJSON {
				return a.printJSON(map[string]any{"file": output, "digest": sandbox.Digest(signed), "bytes": len(signed), "key": key.Public().String()})
			}
			a.printf("%s\n%s\nsigned with %s\n", output, sandbox.Digest(signed), key.Public())
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVar(&keyPath, "key", "", "secret key file")
	flags.StringVar(&passwordFile, "password-file", "", "file whose first line is the key's password (default ask for it)")
	flags.StringVar(&expires, "expires", "", "when the signature ends: 2027-01-01, which is its first moment in UTC, or 2027-01-01T12:00:00Z (default never)")
	flags.StringVar(&o.Comment, "comment", "", "what people are to know of this signature, such as where the source is")
	flags.StringVarP(&output, "output", "o", "", "file to write (default FILE.wasm itself)")
	return c
}

// parseExpiry reads a date as its first moment in UTC: everybody who verifies a
// signature has the same clock.
func parseExpiry(text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return t, fmt.Errorf("%q is not a time: write 2027-01-01 or 2027-01-01T12:00:00Z", text)
	}
	return t, nil
}

// secretKey reads a secret key, and asks for its password if it needs one.
func (a *app) secretKey(ctx context.Context, path, passwordFile string) (signature.PrivateKey, error) {
	file, err := readBounded(path)
	if err != nil {
		return signature.PrivateKey{}, fmt.Errorf("read the secret key: %w", err)
	}
	password := ""
	if signature.IsEncrypted(file) {
		if password, err = a.password(ctx, passwordFile, "Password of "+path+": "); err != nil {
			return signature.PrivateKey{}, err
		}
	}
	key, err := signature.ParsePrivateKey(file, password)
	if err != nil {
		return key, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// readBounded reads a file with a key or a password; what is longer than one is cut,
// so that it is none.
func readBounded(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, signature.MaxKeyFileBytes+1))
	return content, errors.Join(err, file.Close())
}

// newPassword asks twice, or reads a file.
func (a *app) newPassword(ctx context.Context, file string) (string, error) {
	password, err := a.password(ctx, file, "Password for the new key: ")
	if err != nil || file != "" {
		return password, err
	}
	again, err := a.password(ctx, "", "The same again: ")
	if err == nil && again != password {
		err = errors.New("the two passwords differ: no key was made")
	}
	return password, err
}

// password reads the first line of a file, or asks at the terminal.
func (a *app) password(ctx context.Context, file, prompt string) (string, error) {
	if file != "" {
		content, err := readBounded(file)
		if err != nil {
			return "", fmt.Errorf("read the password: %w", err)
		}
		line, _, _ := bytes.Cut(content, []byte("\n"))
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 || len(content) > signature.MaxKeyFileBytes {
			return "", fmt.Errorf("read the password: the first line of %s is none", file)
		}
		return string(line), nil
	}
	terminal, ok := a.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(terminal.Fd())) {
		return "", usagef("a password is needed, and there is no terminal to ask at: name a file with --password-file, or use a key without one (keygen --no-password)")
	}
	before, err := term.GetState(int(terminal.Fd()))
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	fmt.Fprint(a.stderr, prompt)
	type answer struct {
		typed []byte
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		typed, err := term.ReadPassword(int(terminal.Fd()))
		answered <- answer{typed, err}
	}()
	select {
	case got := <-answered:
		fmt.Fprintln(a.stderr)
		switch {
		case got.err != nil:
			return "", fmt.Errorf("read the password: %w", got.err)
		case len(got.typed) == 0:
			return "", errors.New("no password was typed")
		}
		return string(got.typed), nil
	case <-ctx.Done():
		// The terminal must show again what is typed.
		return "", errors.Join(ctx.Err(), term.Restore(int(terminal.Fd()), before))
	}
}

// signatureSummary is what is shown of a module's signature.
type signatureSummary struct {
	// Key and ID are of the key that signed; absent if no signature holds.
	Key string `json:"key,omitempty"`
	ID  string `json:"id,omitempty"`
	// Name is what the configuration calls the key, or the command line, if it is
	// among theirs.
	Name    string     `json:"name,omitempty"`
	Comment string     `json:"comment,omitempty"`
	Expires *time.Time `json:"expires,omitempty"`
	// Trusted says that it is by one of the keys, and not over.
	Trusted bool   `json:"trusted"`
	Refusal string `json:"refusal,omitempty"`
}

// signatureOf holds a module against keys by their names. The error is why it is not
// trusted.
func signatureOf(module []byte, trusted map[string]signature.PublicKey, now time.Time) (signatureSummary, error) {
	signed, err := signature.Verify(module, slices.Collect(maps.Values(trusted)), now)
	s := signatureSummary{Comment: plain(signed.Comment), Trusted: err == nil}
	if signed.Key != (signature.PublicKey{}) {
		s.Key, s.ID = signed.Key.String(), signed.Key.ID()
		for _, name := range slices.Sorted(maps.Keys(trusted)) {
			if trusted[name] == signed.Key {
				s.Name = name
			}
		}
	}
	if !signed.Expires.IsZero() {
		s.Expires = &signed.Expires
	}
	if err != nil {
		s.Refusal = plain(err.Error())
	}
	return s, err
}

// printSignature prints the lines of a signature that holds.
func (a *app) printSignature(s signatureSummary) {
	if s.Key == "" {
		return
	}
	name := s.Name
	if name == s.Key {
		name = ""
	}
	a.printf("signed by   %s\n", strings.TrimSpace(name+" "+s.Key))
	if s.Expires != nil {
		a.printf("            until %s\n", s.Expires.Format(time.RFC3339))
	}
	if s.Comment != "" {
		a.printf("            %s\n", s.Comment)
	}
}

func (a *app) handVerify() *cobra.Command {
	var keys []string
	c := &cobra.Command{
		Use: "verify FILE.wasm", Short: "Say who signed a module, and whether that is somebody you trust", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			trusted, err := a.trusted(keys)
			if err != nil {
				return err
			}
			module, err := registry.ReadModule(args[0])
			if err != nil {
				return err
			}
			s, refusal := signatureOf(module, trusted, time.Now())
			if a.asJSON {
				if err := a.printJSON(struct {
					File   string `json:"file"`
					Digest string `json:"digest"`
					signatureSummary
				}{args[0], sandbox.Digest(module), s}); err != nil {
					return err
				}
			} else {
				a.printf("digest      %s\n", sandbox.Digest(module))
				a.printSignature(s)
				if refusal == nil {
					a.printf("verified    yes\n")
				} else {
					a.printf("verified    no: %s\n", s.Refusal)
				}
			}
			if refusal != nil {
				return errReported
			}
			return nil
		},
	}
	c.Flags().StringArrayVar(&keys, "key", nil, "public key RW…, or a file with one, repeatable (default those of the configuration)")
	return c
}

// trusted are the keys of a command line, by what was written there, and else those of
// the configuration by their names.
func (a *app) trusted(keys []string) (map[string]signature.PublicKey, error) {
	if len(keys) > 0 {
		given := map[string]signature.PublicKey{}
		for _, key := range keys {
			public, err := host.ReadPublicKey(key)
			if err != nil {
				return nil, fmt.Errorf("--key %s: %w", key, err)
			}
			given[key] = public
		}
		return given, nil
	}
	config, err := a.config()
	if err != nil {
		return nil, err
	}
	if len(config.Trust.Keys) == 0 {
		return nil, usagef("no key is trusted: name one with --key, or in the configuration under [trust.keys]")
	}
	return config.TrustedKeys()
}
