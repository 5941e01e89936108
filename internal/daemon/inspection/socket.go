// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/web"
)

// connectionsMax bounds the connections to the socket. Further ones wait in the kernel.
const connectionsMax = 32

// Socket is the local socket of this process. It outlives servers: each answers on it in turn, and clients do not
// notice a reload (docs/adr/0027-inspection-api.md).
type Socket struct {
	log *zap.Logger
	// answers are those of the server that runs.
	answers atomic.Pointer[http.Handler]

	mu sync.Mutex
	// path is where the socket is, or will be; empty before Show and after Close.
	path string
	// stop ends the goroutine that listens there, and stopped is closed when it has ended.
	stop    context.CancelFunc
	stopped chan struct{}
}

// NewSocket returns one that is closed until Show.
func NewSocket(log *zap.Logger) *Socket { return &Socket{log: log} }

// Show answers with a handler from now on, and listens at a path if it does not yet.
func (k *Socket) Show(path string, answers http.Handler) {
	k.answers.Store(&answers)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.path == path {
		return
	}
	k.end()
	ctx, stop := context.WithCancel(context.Background())
	stopped, told := make(chan struct{}), sync.Once{}
	k.path, k.stop, k.stopped = path, stop, stopped
	// Every failure is retried: inspection is no reason to end a proxy. The handler bounds each answer.
	server := web.NewServer(web.ServerConfig{
		Name: "inspection socket", Address: path, Listen: func() (net.Listener, error) { return listen(ctx, path) },
		Handler: k, ForProbes: true, Log: k.log,
		Failed: func(err error) {
			told.Do(func() {
				k.log.Warn("cannot serve the inspection socket; retrying", zap.String("socket", path), zap.Error(err))
			})
		},
	})
	go func() {
		defer close(stopped)
		_ = server.Run(ctx) // it returns when the context ends
	}()
}

// Close closes and removes the socket. It waits for answers in progress, though not long.
func (k *Socket) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end()
}

// end stops listening. The caller holds the lock.
func (k *Socket) end() {
	if k.path == "" {
		return
	}
	k.stop()
	<-k.stopped
	k.path = ""
}

// ServeHTTP answers as the server that runs now.
func (k *Socket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*k.answers.Load()).ServeHTTP(w, r)
}

// listen listens at a path, and makes the directory. What it made is removed when the listener closes.
func listen(ctx context.Context, path string) (net.Listener, error) {
	removeDir := func() {}
	if made := os.Mkdir(filepath.Dir(path), 0o700); made == nil {
		removeDir = func() { _ = os.Remove(filepath.Dir(path)) } // it stays if others have put files there
	} else if !errors.Is(made, fs.ErrExist) {
		return nil, made
	}
	listener, err := listenAt(ctx, path)
	if err != nil {
		removeDir()
		return nil, err
	}
	own, err := os.Lstat(path)
	if err != nil {
		removeDir()
		return nil, errors.Join(err, listener.Close())
	}
	return &removing{netutil.LimitListener(listener, connectionsMax), func() { removeOwn(path, own); removeDir() }}, nil
}

// removing is a listener that removes its files when it closes.
type removing struct {
	net.Listener
	remove func()
}

// Close implements net.Listener.
func (r *removing) Close() error {
	defer r.remove()
	return r.Listener.Close()
}

// listenAt listens at a path, for root alone. It replaces a socket without a listener: one of
// a process that was killed.
func listenAt(ctx context.Context, path string) (*net.UnixListener, error) {
	if err := clearStale(path); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		// The file gets the mode of the socket: no other user can connect, not even at first.
		controlErr := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, controlErr)
	}}
	listener, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	unixListener, ok := listener.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T is no Unix listener", listener), listener.Close())
	}
	unixListener.SetUnlinkOnClose(false) // removeOwn does
	return unixListener, nil
}

// clearStale removes a socket without a listener.
func clearStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is no socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close() // nothing was sent
		return fmt.Errorf("%s: another process listens there; proxies in several network namespaces need a state directory each (state.dir, --sluice-state-dir)", path)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// removeOwn removes a socket, unless another process has replaced it.
func removeOwn(path string, own fs.FileInfo) {
	if now, err := os.Lstat(path); err == nil && os.SameFile(now, own) {
		_ = os.Remove(path) // one that stays is replaced as one of a killed process is
	}
}

// SocketPath returns where the socket of a configuration is.
func SocketPath(o *setup.Options) string {
	return filepath.Join(o.Sluice.State.Dir, inspect.SocketName)
}
