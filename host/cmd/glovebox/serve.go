package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel"

	"github.com/gloveboxhq/glovebox/host"
	"github.com/gloveboxhq/glovebox/host/control"
	"github.com/gloveboxhq/glovebox/host/dashboard"
	"github.com/gloveboxhq/glovebox/host/gateway"
	"github.com/gloveboxhq/glovebox/host/mcp"
	"github.com/gloveboxhq/glovebox/host/telemetry"
	"github.com/gloveboxhq/glovebox/memory"
)

// tokensBeside is where the tokens of a database are.
func tokensBeside(path string) string { return filepath.Join(filepath.Dir(path), "tokens.json") }

func (a *app) serve() *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use: "serve", Short: "Serve dashboard, control API, model gateway and MCP over HTTP", Args: cobra.NoArgs,
		Long: "Serve the dashboard, the control API, the model gateway and MCP over HTTP, until Ctrl-C. Callers need a token of\n" +
			"glovebox token create; while there never was one, everybody on this machine may do everything, and nobody else\n" +
			"can be listened for. docs/control.md has the routes, /openapi.json too.",
		RunE: func(c *cobra.Command, _ []string) (err error) {
			config, err := a.config()
			if err != nil {
				return err
			}
			written, err := a.configWritten()
			if err != nil {
				return err
			}
			if listen != "" {
				config.Server.Listen = listen
				if err := config.Check(); err != nil {
					return usagef("--listen: %w", err)
				}
			}
			hangups := hangUps()
			defer signal.Stop(hangups)
			path, err := config.DatabasePath()
			if err != nil {
				return err
			}
			tokens, err := control.OpenTokens(tokensBeside(path))
			if err != nil {
				return err
			}
			// A port that is taken is noticed before the database is opened.
			listener, err := (&net.ListenConfig{}).Listen(c.Context(), "tcp", config.Server.Address())
			if err != nil {
				return err
			}
			defer listener.Close()
			none, err := tokens.None()
			if err != nil {
				return err
			}
			alone := isLoopback(listener.Addr()) && len(config.Server.Hosts) == 0
			if none && !alone {
				return fmt.Errorf("nobody has a token, and %s may be reached from elsewhere: make one with glovebox token create, or listen on 127.0.0.1", listener.Addr())
			}
			log := a.serverLogger(config.Logging)
			measured, err := telemetry.New(c.Context(), programVersion())
			if err != nil {
				return err
			}
			otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("telemetry", "error", err) }))
			defer closeTelemetry(c.Context(), measured, log)
			config.Meter, config.Tracer, config.Log = measured.Meter, measured.Tracer, log
			h, err := open(c.Context(), config)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, h.Close()) }()
			if err := a.announce(listener.Addr(), none); err != nil {
				return err
			}
			go a.reloading(c.Context(), h, hangups, a.readAgain(written, listen), log)
			logins := control.NewLogins(tokens, nil)
			handler := control.New(control.Config{
				Host: h, HostConfig: config, Tokens: tokens, Logins: logins, Open: alone, Hosts: config.Server.Hosts, Log: log,
				Meter: config.Meter, Tracer: config.Tracer, Ending: c.Context(),
				Mounts: mounts(h, config, logins, measured),
			})
			return control.Server{Handler: handler, Drain: config.Server.Drain(), Log: log}.Serve(c.Context(), listener)
		},
	}
	c.Flags().StringVar(&listen, "listen", "", "address and port to listen on (default [server] listen, else 127.0.0.1:7780)")
	return c
}

// serverLogger writes what a server that runs for long has to say.
func (a *app) serverLogger(config host.LogConfig) *slog.Logger {
	if a.verbose && config.Level != "debug" {
		config.Level = "info"
	}
	return slog.New(control.LogHandler(config.Handler(a.stderr)))
}

// hangUps receives SIGHUP, which ends the other commands and has this one read its
// configuration again.
func hangUps() chan os.Signal {
	signals := make(chan os.Signal, 1)
	// In between it ends nobody.
	signal.Ignore(syscall.SIGHUP)
	signal.Notify(signals, syscall.SIGHUP)
	return signals
}

// configWritten tells whether there is a file of the configuration.
func (a *app) configWritten() (bool, error) {
	_, path, err := a.places()
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return true, nil
}

// readAgain reads the configuration of a server that runs. A file that was there and
// is not any more, such as between the two steps of who replaces it, is an error and
// not a configuration without hands; written says whether there was one.
func (a *app) readAgain(written bool, listen string) func() (host.Config, error) {
	return func() (host.Config, error) {
		there, err := a.configWritten()
		if err != nil {
			return host.Config{}, err
		}
		if written && !there {
			_, path, _ := a.places()
			return host.Config{}, fmt.Errorf("%s is not there any more: an empty file is a configuration without hands", path)
		}
		written = there
		config, err := a.config()
		if listen != "" {
			config.Server.Listen = listen
		}
		return config, err
	}
}

// reloading takes over the configuration at every signal, until ctx is done. What is
// wrong with it is in the log, and the one before stays.
func (a *app) reloading(ctx context.Context, h *host.Host, signals <-chan os.Signal, read func() (host.Config, error), log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		changed, err := h.ReloadFrom(ctx, read)
		if err != nil {
			log.Error("the configuration is not taken over: the one before stays", "error", err)
			continue
		}
		log.Info("the configuration is taken over", "added", changed.Added, "changed", changed.Changed, "removed", changed.Removed, "sources", changed.Sources)
		if len(changed.Restart) > 0 {
			log.Warn("what differs in these sections needs a restart", "sections", changed.Restart)
		}
	}
}

// telemetryTimeout is how long the last spans may take to be sent: a collector that
// is away does not hold up the end.
const telemetryTimeout = 5 * time.Second

func closeTelemetry(ctx context.Context, measured *telemetry.Telemetry, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), telemetryTimeout)
	defer cancel()
	if err := measured.Close(ctx); err != nil {
		log.Warn("the last measurements are lost", "error", err)
	}
}

// mounts are the parts of the server beside the control API.
func mounts(h *host.Host, config host.Config, logins *control.Logins, measured *telemetry.Telemetry) []control.Mount {
	user := func(ctx context.Context) memory.UserID { return control.CallerOf(ctx).User }
	all := []control.Mount{
		{Patterns: gateway.Patterns, Access: control.ForUser, Refuse: gateway.Refuse,
			Handler: gateway.New(gateway.Config{Host: h, HostConfig: config, User: user, Log: config.Log})},
		{Patterns: mcp.Patterns, Access: control.ForUser,
			Handler: mcp.NewHandler(mcp.Config{Host: h, User: user, Version: programVersion(), Log: config.Log})},
		{Patterns: []string{"GET /metrics"}, Access: control.ForAdmin, Handler: measured.Metrics()},
	}
	return append(all, dashboard.Mounts(dashboard.Config{Host: h, HostConfig: config, Logins: logins, Version: programVersion(), Log: config.Log})...)
}

// announce says where the server is, and that nobody asks who calls, if so.
func (a *app) announce(at net.Addr, open bool) error {
	if open {
		fmt.Fprintln(a.stderr, "glovebox: there is no token: everybody on this machine may do everything; glovebox token create ends that")
	}
	url := "http://" + at.String()
	if a.asJSON {
		return a.printJSON(struct {
			Address string `json:"address"`
			URL     string `json:"url"`
		}{at.String(), url})
	}
	a.printf("serving on %s\n", url)
	return nil
}

func isLoopback(at net.Addr) bool {
	address, err := netip.ParseAddrPort(at.String())
	return err == nil && address.Addr().Unmap().IsLoopback()
}

// bindUsers makes the database and the users of the configuration exist.
func (a *app) bindUsers(c *cobra.Command, config host.Config) error {
	config.Hands, config.Compaction.ContextSources = nil, nil
	h, err := open(c.Context(), config)
	if err != nil {
		return err
	}
	return h.Close()
}
