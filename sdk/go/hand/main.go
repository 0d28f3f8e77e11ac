package hand

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/gloveboxhq/glovebox/abi"
)

// Main is the command profile: it reads one query as JSON from standard input
// and writes the reply to standard output, or the failure to standard error
// with exit code 1. A reactor never calls it.
func Main() {
	if err := run(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	query, err := io.ReadAll(io.LimitReader(stdin, abi.MaxRequestBytes))
	if err != nil {
		return fmt.Errorf("read query from standard input: %w", err)
	}
	text, err := answer(ctx, query)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, text); err != nil {
		return fmt.Errorf("write reply to standard output: %w", err)
	}
	return nil
}
