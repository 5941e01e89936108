// SPDX-License-Identifier: Apache-2.0

// Package defects plants defects into builds, for the checks that have to notice
// them. The tree stays as it is: the compiler gets other texts for some files.
package defects

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Rejecting makes the real kernel reject one Service, by its name: in nftables, its rules get an
// unknown expression; in iptables, one names a missing accounting object. Builds of test/campaign
// have it.
func Rejecting(service string) []Edit {
	const method = "func (r *Renderer) Service("
	const before = method + `ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	objects := r.accepted(ctx, view, facts)
	if view.Key.Name != "%s" || len(objects) == 0 {
		return objects
	}
`
	const after = "}\n\nfunc (r *Renderer) accepted("
	return []Edit{
		{"dataplane/nftables/render/renderer.go", method, fmt.Sprintf(before, service) + `
	body, rule := netlink.Nest(nil, 2)
	body, list := netlink.Nest(body, unix.NFTA_RULE_EXPRESSIONS)
	body, element := netlink.Nest(body, unix.NFTA_LIST_ELEM)
	body = netlink.AppendText(body, unix.NFTA_EXPR_NAME, "telepathy")
	body = netlink.End(netlink.End(netlink.End(body, element), list), rule)
	return append(objects, dataplane.Object{
		ID: dataplane.ID{Container: "chain", Name: "endpoint-unheard-of"}, Kind: dataplane.Owned, Body: string(body),
	})
` + after},
		{"dataplane/iptables/render/renderer.go", method, fmt.Sprintf(before, service) + `
	return append(objects, dataplane.Object{
		ID: dataplane.ID{Container: "nat", Name: "KUBE-SVC-UNHEARDOF0000000"}, Kind: dataplane.Owned,
		Body: "-m nfacct --nfacct-name unheard-of -j RETURN",
	})
` + after},
	}
}

// Build runs the go command, with words such as "build" and a package, on the tree at the top, with
// an overlay unless that is "".
func Build(ctx context.Context, top, overlay, output string, words ...string) error {
	args := []string{words[0], "-overlay=" + overlay, "-o", output}
	cmd := exec.CommandContext(ctx, "go", append(args, words[1:]...)...)
	cmd.Dir, cmd.Env = top, append(os.Environ(), "CGO_ENABLED=0")
	if printed, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, printed)
	}
	return nil
}

// Edit replaces the text Old, which occurs once in a file of the tree.
type Edit struct {
	File, Old, New string
}

// Overlay writes what `go build -overlay` needs into a directory, and returns the file to name
// there. Top is the top of the tree. It is an error if the code no longer has a text: the defect
// has to follow it.
func Overlay(top, dir string, edits ...Edit) (string, error) {
	texts := map[string]string{}
	for _, e := range edits {
		file := filepath.Join(top, e.File)
		if _, read := texts[file]; !read {
			b, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			texts[file] = string(b)
		}
		if n := strings.Count(texts[file], e.Old); n != 1 {
			return "", fmt.Errorf("%s has %q %d times, want once: the defect has to follow the code", e.File, e.Old, n)
		}
		texts[file] = strings.Replace(texts[file], e.Old, e.New, 1)
	}
	replace := map[string]string{}
	for file, text := range texts {
		changed := filepath.Join(dir, fmt.Sprintf("changed%d.go", len(replace)))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[file] = changed
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}
