// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func (f *flags) uiCommand() *cobra.Command {
	var port uint16
	noBrowser := false
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show all nodes in the browser",
		Long: `Show all nodes in the browser: their state, their problems, and how a Service stands on
each of them. The command serves the page on 127.0.0.1 until it is interrupted. It asks the
nodes every 10 s while the page is open. The address contains a secret: a person who knows
it can ask with your rights.`,
		Example: "  kubectl sluice ui\n  kubectl sluice ui --no-browser --listen-port 8001",
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.serve(cmd, port, !noBrowser)
		},
	}
	cmd.Flags().Uint16Var(&port, "listen-port", 0, "port of the page on 127.0.0.1 (default: a random one)")
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "do not open the browser")
	return cmd
}

// serve serves the page until the context ends.
func (f *flags) serve(cmd *cobra.Command, port uint16, browser bool) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	f.Notes = nil // the page shows the progress
	c, err := f.connect()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("serve the page: %w; choose another --listen-port", err)
	}
	p := newPage(ctx, c)
	secret, handler := p.handler(listener.Addr().String())
	address := "http://" + listener.Addr().String() + secret
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if browser {
		remove, err := browse(ctx, address)
		defer remove()
		if err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "open the browser: %v; open the address yourself\n", err)
		}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "All nodes are shown at %s\nPress Ctrl-C to end the page.\n", address)
	err = server.Serve(listener)
	cancel()
	p.rounds.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// browse opens an address in the browser. Other users can read the arguments of a process, so the browser gets a file
// that only this user can read, and that redirects to the address.
func browse(ctx context.Context, address string) (remove func(), err error) {
	dir, err := os.MkdirTemp("", "kubectl-sluice-")
	if err != nil {
		return func() {}, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	file := filepath.Join(dir, "open.html")
	text := fmt.Sprintf(`<!doctype html><meta http-equiv="refresh" content="0;url=%s"><title>Sluice</title>`, address)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return remove, err
	}
	words := map[string][]string{"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"}}[runtime.GOOS]
	if words == nil {
		words = []string{"xdg-open"}
	}
	opener := exec.CommandContext(ctx, words[0], append(words[1:], file)...) // the words are constants
	if err := opener.Start(); err != nil {
		return remove, err
	}
	go func() { _ = opener.Wait() }() // the opener ends with the browser at the latest, or with the context
	return remove, nil
}
