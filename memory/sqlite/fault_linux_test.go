package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/gloveboxhq/glovebox/memory"
	"github.com/gloveboxhq/glovebox/memory/crashtest"
	"github.com/gloveboxhq/glovebox/memory/sqlite"
)

func init() {
	childTasks["small disk"] = onSmallDisk
	childTasks["small file"] = withSmallFiles
}

// skipped is what a child says that cannot have its limit.
const skipped = "skipped: "

// smallDisk is how much is free in bytes, ballast how much of it is given back
// later.
const (
	smallDisk = 1 << 20
	ballast   = 256 << 10
)

// onSmallDisk fills a file system of its own.
func onSmallDisk(dir string) int {
	disk := filepath.Join(dir, "disk")
	err := os.Mkdir(disk, 0o700)
	if err == nil {
		err = syscall.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%d", smallDisk))
	}
	if err != nil {
		fmt.Println(skipped+"mount:", err)
		return 0
	}
	defer syscall.Unmount(disk, syscall.MNT_DETACH)
	held := filepath.Join(disk, "ballast")
	// A new database that has no room at all is made when there is.
	if err := os.WriteFile(held, make([]byte, 2*smallDisk), 0o600); !errors.Is(err, syscall.ENOSPC) {
		fmt.Println("never full:", err)
		return 1
	}
	store, err := sqlite.Open(context.Background(), database(disk), sqlite.Options{})
	if err == nil {
		fmt.Println("made on a full disk:", store.Close())
		return 1
	}
	fmt.Println("create:", err)
	if err := os.WriteFile(held, make([]byte, ballast), 0o600); err != nil {
		fmt.Println(err)
		return 1
	}
	return fill(disk, func() error { return os.Remove(held) })
}

// withSmallFiles is not allowed to make a file larger than that.
func withSmallFiles(dir string) int {
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{}
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		fmt.Println(skipped+"getrlimit:", err)
		return 0
	}
	limit.Cur = smallDisk
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		fmt.Println(skipped+"setrlimit:", err)
		return 0
	}
	return fill(dir, func() error {
		limit.Cur = limit.Max
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
	})
}

// fill writes until nothing goes in any more, and on when relieve has made
// room. It says how the writes failed.
func fill(dir string, relieve func() error) int {
	ctx := context.Background()
	fail := func(what string, err error) int {
		fmt.Println(what, err)
		return 1
	}
	store, err := sqlite.Open(ctx, database(dir), sqlite.Options{})
	if err != nil {
		return fail("open:", err)
	}
	user, agent, err := people(ctx, store)
	if err != nil {
		return fail("people:", err)
	}
	session, err := store.CreateSession(ctx, memory.Session{Agent: agent, User: user, CreatedAt: at})
	if err != nil {
		return fail("session:", err)
	}
	var acknowledged []memory.Message
	check := func(when string, store memory.Store) error {
		messages, err := store.Messages(ctx, user, session.ID, memory.MessageQuery{})
		if err == nil && !reflect.DeepEqual(messages, acknowledged) {
			err = fmt.Errorf("%d messages of %d", len(messages), len(acknowledged))
		}
		if err = errors.Join(err, crashtest.CheckSession(ctx, store, user, session.ID)); err != nil {
			return fmt.Errorf("%s: %w", when, err)
		}
		return nil
	}
	add := func(size int) error {
		messages, err := store.Append(ctx, user, session.ID, said(strings.Repeat("x", size)), said("second of a batch"))
		acknowledged = append(acknowledged, messages...)
		return err
	}
	// Smaller ones go in when larger ones do not; then nothing does.
	var full error
	for size := 64 << 10; size > 0; {
		if err := add(size); err != nil {
			full = err
			if err := check("after a write that failed", store); err != nil {
				return fail("", err)
			}
			size /= 4
		}
		if len(acknowledged) > 10_000 {
			return fail("never full", nil)
		}
	}
	fmt.Println("full:", full)
	if err := compact(ctx, store, user, session.ID); err == nil {
		// Where it fitted in, it is whole.
		fmt.Println("a summary had room")
	}
	if err := check("full", store); err != nil {
		return fail("", err)
	}
	// Whoever opens a store on a full disk reads it, or is told why not.
	closed := store.Close()
	again, err := sqlite.Open(ctx, database(dir), sqlite.Options{})
	if err != nil {
		fmt.Println("reopen:", err)
	} else {
		err = check("reopened", again)
		if err = errors.Join(err, again.Close()); err != nil {
			return fail("reopened:", err)
		}
	}
	if closed != nil {
		fmt.Println("close:", closed)
	}
	if err := relieve(); err != nil {
		return fail("relieve:", err)
	}
	if store, err = sqlite.Open(ctx, database(dir), sqlite.Options{}); err != nil {
		return fail("open again:", err)
	}
	defer store.Close()
	if err := check("with room again", store); err != nil {
		return fail("", err)
	}
	for range 3 {
		if err := add(10_000); err != nil {
			return fail("with room again:", err)
		}
	}
	if err := check("at the end", store); err != nil {
		return fail("", err)
	}
	fmt.Println("acknowledged", len(acknowledged))
	return 0
}

// A full disk fails a write with an error that says so; what was acknowledged
// stays, can be read, and more can be written once there is room.
func TestDiskFull(t *testing.T) {
	for _, test := range []struct {
		task       string
		attributes *syscall.SysProcAttr
		says       string
	}{
		{"small disk", &syscall.SysProcAttr{
			// As root of a namespace of its own, anybody may mount.
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}, "the disk is full"},
		{"small file", nil, "look whether the disk is full or failing"},
	} {
		t.Run(test.task, func(t *testing.T) {
			command := rerun(t, t.TempDir(), test.task)
			command.SysProcAttr = test.attributes
			output, err := command.CombinedOutput()
			text := string(output)
			if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSPC) {
				t.Skipf("this machine gives no namespace to mount a small disk in: %v", err)
			}
			if _, why, ok := strings.Cut(text, skipped); ok {
				t.Skip("this machine does not let a disk be small: ", why)
			}
			t.Log(text)
			if err != nil || !strings.Contains(text, "acknowledged") {
				t.Fatal(err)
			}
			for line := range strings.Lines(text) {
				what, message, _ := strings.Cut(line, ": ")
				if (what == "create" || what == "full" || what == "reopen" || what == "close") && !strings.Contains(message, test.says) {
					t.Errorf("%s", line)
				}
			}
		})
	}
}
