// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/inspect"
)

// emptyProxy serves the socket of a proxy without Services. It returns its path.
func emptyProxy(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Sluice-Api", inspect.Version)
		_, _ = w.Write([]byte(`{"items":[],"of":"services"}`))
	})
	return served(t, mux)
}

// listCommands returns the paths of all commands whose answers are lists.
func listCommands(cmd *cobra.Command) (all []string) {
	if cmd.HasSubCommands() {
		for _, c := range cmd.Commands() {
			all = append(all, listCommands(c)...)
		}
	} else if slices.Contains([]string{"get", "top", "describe"}, cmd.Parent().Name()) {
		all = []string{strings.TrimPrefix(cmd.CommandPath(), "sluice ")}
	}
	return all
}

// TestCLI_EmptyListIsOneSentence: for an empty list, each command prints one sentence on standard error and nothing on
// standard output; JSON is complete.
func TestCLI_EmptyListIsOneSentence(t *testing.T) {
	socket, commands := emptyProxy(t), append(listCommands(rootCommand()), "get connections --by client")
	if len(commands) < 8 {
		t.Fatalf("only %q", commands)
	}
	run := func(command string) (out, notes string) {
		var stdout, stderr bytes.Buffer
		root := rootCommand()
		root.SetArgs(append(strings.Fields(command), "--socket", socket))
		root.SetOut(&stdout)
		root.SetErr(&stderr)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v", command, err)
		}
		return stdout.String(), stderr.String()
	}
	for _, command := range commands {
		for _, more := range []string{"", " -o wide", " --no-headers", " -n shop"} {
			out, notes := run(command + more)
			if out != "" || strings.Count(notes, "\n") != 1 || !strings.HasPrefix(notes, "No ") || strings.Contains(notes, " in namespace shop.") != strings.Contains(more, "shop") {
				t.Errorf("%s%s: standard output %q, standard error %q", command, more, out, notes)
			}
		}
		out, notes := run(command + " -o json")
		var list struct{ Items []any }
		if err := json.Unmarshal([]byte(out), &list); err != nil || list.Items == nil || len(list.Items) > 0 || notes != "" {
			t.Errorf("%s -o json: %v, %q, standard error %q", command, err, out, notes)
		}
	}
	if out, notes := run("get services --sort-by age"); out != "" || notes != "No Services.\n" {
		t.Errorf("sorted: %q, %q", out, notes)
	}
}
