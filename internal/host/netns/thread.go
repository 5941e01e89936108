package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// threadNamespace names the network namespace of the thread that opens it.
const threadNamespace = "/proc/thread-self/ns/net"

// errAbandoned is what a caller sees when its function left by runtime.Goexit, as t.Fatal does.
var errAbandoned = errors.New("netns: the function ended its goroutine (t.Fatal or runtime.Goexit) instead of returning")

// onThread runs f on an operating system thread that f may move to another network namespace, and
// waits for it. Afterwards the thread is moved back, or given up where that is not possible.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errAbandoned
		defer func() { done <- err }()
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// This is the main thread, which must stay where it is. Holding on to it while waiting
			// keeps the scheduler from picking it again for the goroutine started here.
			err = onThread(f)
			runtime.UnlockOSThread()
			return
		}
		origin, openErr := os.Open(threadNamespace)
		if openErr != nil {
			runtime.UnlockOSThread()
			err = fmt.Errorf("netns: find the namespace to return to: %w", openErr)
			return
		}
		defer func() {
			// Leaving the goroutine locked makes the runtime end its thread. A failed return is
			// therefore harmless, and expected in a user namespace that did not bring its own network.
			if unix.Setns(int(origin.Fd()), unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
			_ = origin.Close() // opened for reading, nothing can be lost
		}()
		err = f()
	}()
	return <-done
}
